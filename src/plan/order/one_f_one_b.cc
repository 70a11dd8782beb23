// 1F1B. Idea: stage i of S runs S - i forwards ahead, then alternates one backward and one forward,
// so that a micro-batch leaves as soon as it can. Bubble: (S-1)(tF+tB+tW) a stage, as GPipe.
// Memory: S - i micro-batches at stage i. Source: Narayanan et al., "Memory-efficient
// pipeline-parallel DNN training" (PipeDream-Flush), ICML 2021.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

std::vector<Slot> order_one_f_one_b(int32_t stage, int32_t stages, int32_t micros) {
  const int32_t ahead = std::min(micros, stages - stage);
  std::vector<Slot> slots;
  for (int32_t k = 0; k < ahead; ++k) slots.push_back({OpKind::Forward, k});
  for (int32_t k = 0; k < micros; ++k) {
    slots.push_back({OpKind::BackwardInput, k});
    slots.push_back({OpKind::BackwardWeight, k});
    if (k + ahead < micros) slots.push_back({OpKind::Forward, k + ahead});
  }
  return slots;
}

}  // namespace tenuto
