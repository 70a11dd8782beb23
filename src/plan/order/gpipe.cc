// GPipe. Idea: all forwards, then all backwards. Bubble: (S-1)(tF+tB+tW) a stage for S stages.
// Memory: every micro-batch of the pipeline at once. Source: Huang et al., "GPipe", NeurIPS 2019;
// differs: backwards run in ascending order too, so that sums are made in micro-batch order.
#include "plan/order/order.h"

namespace tenuto {

std::vector<Slot> order_gpipe(int32_t, int32_t, int32_t micros) {
  std::vector<Slot> slots;
  for (int32_t k = 0; k < micros; ++k) slots.push_back({OpKind::Forward, k});
  for (int32_t k = 0; k < micros; ++k) {
    slots.push_back({OpKind::BackwardInput, k});
    slots.push_back({OpKind::BackwardWeight, k});
  }
  return slots;
}

}  // namespace tenuto
