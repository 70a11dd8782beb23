// Orders: in which sequence a stage runs the micro-batches of its pipeline. One file per family;
// everything else (numbering, messages, reductions) is the business of the passes in plan/lower.h.
#pragma once

#include <string_view>
#include <vector>

#include "ir/op.h"
#include "plan/make_plan.h"

namespace tenuto {

// One op of a stage's sequence: what, and for the pipeline's how manieth micro-batch.
struct Slot {
  OpKind kind = OpKind::Forward;
  int32_t position = 0;
  auto operator<=>(const Slot&) const = default;
};

// The sequence of stage `stage` of `stages` for `micros` micro-batches: each position's Forward,
// BackwardInput and BackwardWeight exactly once, each kind in ascending position.
using OrderMaker = std::vector<Slot> (*)(int32_t stage, int32_t stages, int32_t micros);

// All forwards, then all backwards.
std::vector<Slot> order_gpipe(int32_t stage, int32_t stages, int32_t micros);
// As many forwards as stages follow, then one backward, one forward.
std::vector<Slot> order_one_f_one_b(int32_t stage, int32_t stages, int32_t micros);
// 1F1B with weight gradients put off by as many micro-batches as stages come before.
std::vector<Slot> order_zb_h1(int32_t stage, int32_t stages, int32_t micros);

// The maker of a named order, or nullptr.
OrderMaker find_order(std::string_view name);

}  // namespace tenuto
