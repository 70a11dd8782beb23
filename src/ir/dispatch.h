// The rule of ready dispatch: which compute op an idle worker takes first, and whether one more
// micro-batch fits. Workers, check and price follow it through ComputeLane; the searches in adapt/
// call it themselves. It allocates nothing.
#pragma once

#include <cstdint>

#include "ir/plan.h"

namespace tenuto {

// The micro-batches that a worker holds, each from the start of its forward to the end of its
// weight gradient. A micro-batch that two stages of the worker hold counts twice.
struct HeldMicros {
  int32_t whole = 0;  // before the end of their input gradient
  int32_t late = 0;   // behind it

  // All of them.
  int32_t count() const { return whole + late; }
};

// How many micro-batches a worker may hold.
struct HeldLimit {
  int32_t micros = INT32_MAX;
  MemoryLimit memory;

  HeldLimit() = default;
  // The part of a worker's limit that says how much it may hold.
  explicit HeldLimit(const Limit& limit)
      : micros(limit.micros > 0 ? limit.micros : INT32_MAX), memory(limit.memory) {}

  // True when a worker that holds these can begin `more` forwards.
  bool fits(HeldMicros held, int32_t more = 1) const {
    return held.count() + more <= micros && memory.fits(held.whole + more, held.late);
  }
};

// The choice when no op of a kind can begin.
inline constexpr int32_t kNoOp = -1;
// The choice of a search that lets the worker wait, though an op of another kind could begin.
inline constexpr int32_t kWait = kNoOp - 1;

// The op that an idle worker takes under ready dispatch. An input gradient comes first, then a
// forward, if worker.limit allows one more beside worker.held(), then a weight gradient. During the
// warm-up no input gradient begins. Each of the three functions returns the op of its kind that can
// begin, or kNoOp, and is called only if the rule allows an op of that kind. The first value other
// than kNoOp is the choice.
//
// An update goes before all of them; only ComputeLane has updates.
template <class Worker, class Backward, class Forward, class Weight>
inline int32_t first_ready(bool warms_up, const Worker& worker, Backward backward, Forward forward,
                           Weight weight) {
  if (!warms_up) {
    if (const int32_t op = backward(); op != kNoOp) return op;
  }
  if (worker.limit.fits(worker.held())) {
    if (const int32_t op = forward(); op != kNoOp) return op;
  }
  return weight();
}

}  // namespace tenuto
