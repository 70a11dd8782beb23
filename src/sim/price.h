// The price of a plan: when every op would start and finish on a given cluster.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/plan.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// One op of one worker in time.
struct Span {
  WorkerId worker;
  Op op;
  Duration start{}, finish{};
};

// What a price is made of.
struct Timeline {
  std::vector<Span> spans;           // by worker, then start; empty unless asked for
  Duration makespan{};               // of one step from empty
  Duration lower_bound{};            // no schedule of the same routing is faster
  double bubble_fraction = 0;        // idle share of the compute lanes
  std::vector<int32_t> peak_micros;  // per worker: micro-batches held at once, at most
  int64_t ops = 0;
};

// What to compute beside the makespan.
struct PriceOptions {
  bool spans = false;
};

// Runs the plan's step on a clock of integer nanoseconds. Deterministic: ties by worker, lane,
// place.
//
// Requires: check(plan) is ok
// Errors:   Infeasible/Job   nothing can move; the sentence lists what each worker waits for
Result<Timeline> price(const Plan& plan, const Model& model, const Cluster& cluster,
                       const PriceOptions& options = {});

// The time that the op takes on the compute lane of a worker of speed 1.
Duration op_time(const Op& op, const Plan& plan, const std::vector<StageCost>& costs,
                 const Model& model);

}  // namespace tenuto
