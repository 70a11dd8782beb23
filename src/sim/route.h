// The routes of micro-batches through the stages: the form of a pipeline that lower bounds and the
// searches for orders use.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/price.h"

namespace tenuto {

// The times of one message on its link; zero inside a worker.
struct Transit {
  Duration latency{};
  Duration busy{};  // bytes / rate: how long it occupies the link
};

// The times of the ops and messages of a plan's stages on a cluster. All arguments except the
// options must outlive it.
class Costs {
 public:
  Costs(const Plan& plan, const Model& model, const Cluster& cluster, const PriceOptions& options);
  // An op of a micro-batch at a worker.
  Duration op(OpKind kind, WorkerId worker, StageId stage) const;
  // A message with the activation or the gradient that `stage` makes.
  Transit transit(WorkerId from, WorkerId to, ValueKind kind, StageId stage) const;

 private:
  const Plan& plan_;
  const Cluster& cluster_;
  Duration per_op_;
  Sizes sizes_;
  std::vector<StageCost> stages_;
};

// One stage on one route: times of its ops on its worker, and of the messages that leave it.
struct Leg {
  Duration forward{}, backward{}, weight{};
  Duration down{}, up{};            // latencies: of the activation to the next stage, of the
                                    // gradient to the one before
  Duration down_busy{}, up_busy{};  // how long the message occupies its link: bytes / rate
  MemoryLimit memory;               // of the worker
  auto operator<=>(const Leg&) const = default;
};

// The micro-batches that go through the same workers. They are alike, so running them in the order
// of their numbers loses nothing.
struct Route {
  std::vector<WorkerId> workers;  // of each stage
  std::vector<MicroId> micros;    // ascending
  std::vector<Leg> legs;          // of each stage
  bool trains = true;             // no: a held-out pass, forwards only
};

// The routes of a schedule, by their workers.
std::vector<Route> routes_of(const Plan& plan, const Schedule& schedule, const Model& model,
                             const Cluster& cluster, const PriceOptions& options);

}  // namespace tenuto
