// From a shape to a plan: partition of the layers, holders, order, messages, reductions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// The shape of a run.
struct Shape {
  int32_t stages = 1;
  int32_t pipelines = 1;
  int32_t micros = 1;          // per pipeline
  int32_t layers = 1;          // of the model; at least `stages`
  std::string order = "1f1b";  // a name from order_names()
  Dispatch dispatch = Dispatch::Listed;
  bool split_backward = false;
  int32_t memory = 0;              // micro-batches a worker may hold; 0 = unlimited
  bool tied = false;               // first and last stage share a weight (bucket 1)
  int32_t evaluation_micros = 0;   // micro-batches of the held-out pass, over all pipelines
  std::vector<double> layer_cost;  // relative, for the partition; empty = equal
};

// A plan that passes check().
//
// Errors: Invalid/Call      unknown order (with the nearest name), more stages than layers, ...
//         Exhausted/Worker  the order needs more micro-batches in flight than `memory`
Result<Plan> make_plan(const Shape& shape);

// The names that make_plan knows, with whether the order splits its backward by default.
struct OrderCard {
  std::string name;
  bool splits_backward = false;
  std::string summary;  // one line: warm-up, bubble, memory, source
};
// Every known order.
const std::vector<OrderCard>& order_cards();

}  // namespace tenuto
