// ZB-H1. Idea: 1F1B, but stage i puts each weight gradient off until i more input gradients are
// done, so that the gradient reaches the stages before sooner and weight gradients fill the end.
// Bubble: (S-1)(tF+tB-tW) a stage. Memory: S micro-batches at every stage, S - i of them between
// forward and backward. Source: Qi et al., "Zero bubble pipeline parallelism", ICLR 2024.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

std::vector<Slot> order_zb_h1(int32_t stage, int32_t stages, int32_t micros) {
  const int32_t ahead = std::min(micros, stages - stage);
  std::vector<Slot> slots;
  for (int32_t k = 0; k < ahead; ++k) slots.push_back({OpKind::Forward, k});
  for (int32_t k = 0; k < micros; ++k) {
    slots.push_back({OpKind::BackwardInput, k});
    if (k >= stage) slots.push_back({OpKind::BackwardWeight, k - stage});
    if (k + ahead < micros) slots.push_back({OpKind::Forward, k + ahead});
  }
  for (int32_t k = std::max(0, micros - stage); k < micros; ++k) {
    slots.push_back({OpKind::BackwardWeight, k});
  }
  return slots;
}

}  // namespace tenuto
