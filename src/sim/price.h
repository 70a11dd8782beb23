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

// One op of one worker in time. A Recv lasts from when its message set out to its arrival.
struct Span {
  WorkerId worker;
  Op op;
  Duration start{}, finish{};
  int32_t after = -1;  // index of the span that it waited for last; -1: it is not said, or none
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
  bool lower_bound = true;
  bool update = true;       // no: the clock stops at the last weight gradient; reductions, norm and
                            // Step are left out of makespan, bubble and spans
  bool evaluation = false;  // price the held-out pass instead of the step
};

// Runs the plan's step on a clock of integer nanoseconds. Deterministic: ties by worker, lane,
// place; what ends at a moment has ended before anything starts at it. A message goes out when it
// is made and its receive is posted, occupies its directed link for bytes / rate (first come, first
// served) and arrives a latency later. A reduction has its links to itself.
//
// Requires: check(plan) is ok, the model has the plan's layers
// Errors:   Infeasible/Job     nothing can move; the sentence lists what each worker waits for
//           Infeasible/Worker  a worker that is not alive, or without speed, has ops
Result<Timeline> price(const Plan& plan, const Model& model, const Cluster& cluster,
                       const PriceOptions& options = {});

// The time that the op takes on the compute lane of a worker of speed 1. The one place that knows
// what an unsplit backward costs: BackwardInput both gradients, BackwardWeight nothing.
Duration op_time(const Op& op, const Plan& plan, const std::vector<StageCost>& costs,
                 const Model& model);

// The time at a worker of another speed, rounded to the nearest nanosecond.
Duration at_speed(Duration time, double speed);

}  // namespace tenuto
