// Makes a plan from a shape: partition of the layers, holders, order, messages, reductions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// The order name of a plan whose order is left open: ready dispatch runs ops as their inputs
// arrive, limited by the memory alone. The search in adapt/, which knows times and links, finds an
// order later.
inline constexpr const char* kAutoOrder = "auto";

// True when the order of this name splits the backward (input and weight gradients) by default.
bool splits_by_default(const std::string& order);

// The shape of a run.
struct Shape {
  int32_t stages = 1;  // workers of a pipeline; the plan has stages x chunks stages
  int32_t chunks = 0;  // stages of one worker; 0 = the order's default
  int32_t pipelines = 1;
  int32_t micros = 1;          // per pipeline
  int32_t layers = 0;          // of the model; 0 = one for each stage
  std::string order = "1f1b";  // the name of a card, or kAutoOrder
  Dispatch dispatch = Dispatch::Listed;
  bool split_backward = false;
  bool recompute = false;           // every stage recomputes, see Stage
  int32_t memory = 0;               // micro-batches a worker may hold; 0 = unlimited
  double late_share = 1;            // of a micro-batch, held from its input gradient to its weight
                                    // gradient; [0, 1]
  bool tied = false;                // first and last stage share a weight (bucket 1)
  bool staggered = false;           // each stage steps when its own gradients are whole
  std::string all_reduce = "ring";  // by which algorithm groups sum, see plan/lower.h
  int32_t evaluation_micros = 0;    // micro-batches of the held-out pass, over all pipelines
  std::vector<double> layer_cost;   // relative, for the partition; empty = equal
};

// A plan that passes check().
//
// Errors: Invalid/Call      unknown order (with the nearest name), more stages than layers, ...
//         Exhausted/Worker  the order needs more micro-batches in flight than `memory`
//         Exhausted/Call    the memory for the plan's lists is not available
Result<Plan> make_plan(const Shape& shape);

// Which stages a worker of a pipeline holds, for S workers and V chunks a worker.
enum class Placement : uint8_t {
  Linear,  // worker w: stage w; V = 1
  Loop,    // chunk c of worker w: stage c S + w
  V,       // worker w: stage w and stage 2S - 1 - w; V = 2
};

// The shape for which an order is made.
struct OrderShape {
  int32_t workers = 1;  // S: of one pipeline
  int32_t micros = 1;   // M: of one pipeline
  int32_t chunks = 1;   // V: stages of one worker
  int32_t memory = 0;   // micro-batches a worker may hold; 0 = unlimited
};

// How long a worker is busy with one micro-batch, over all its chunks; any unit.
struct OpTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;
  // All three.
  double all() const { return forward + backward_input + backward_weight; }
};

// What is known of an order. Letters in words and formulas: S workers of a pipeline, M
// micro-batches of a pipeline, V chunks of a worker, i the worker from 0; tF, tB, tW as OpTimes, t
// their sum.
struct OrderCard {
  std::string name;
  std::string summary;  // what it does, one line
  std::string bubble;   // idle time of a worker
  std::string memory;   // micro-batches that a worker holds
  std::string source;
  bool splits_backward = false;  // by default
  Placement placement = Placement::Linear;
  int32_t chunks = 1;  // by default
  // Why the order cannot be made for a shape: one sentence; empty = it can.
  std::string (*refusal)(const OrderShape& shape) = nullptr;
  // Time of one step over links without delay, with the default backward, each chunk taking 1/V of
  // the worker's times; none where no closed form is known.
  std::optional<double> (*makespan)(const OrderShape& shape, const OpTimes& times) = nullptr;
  // Micro-batches that worker `worker` of a pipeline holds at once, at most, when it runs its list:
  // from the start of the forward to the end of the weight gradient, a chunk counting 1/V.
  double (*peak_micros)(const OrderShape& shape, int32_t worker) = nullptr;
};

// Every known order.
const std::vector<OrderCard>& order_cards();
// The card of a name; nullptr when there is none.
const OrderCard* find_card(const std::string& name);
// The stage that is chunk `chunk` of worker `worker`, both of one pipeline.
int32_t stage_of(Placement placement, const OrderShape& shape, int32_t worker, int32_t chunk);

}  // namespace tenuto
