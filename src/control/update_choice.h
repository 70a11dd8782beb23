// Which kind of update a run's steps have where the run chooses it by itself: with a barrier, or
// ahead of the norm, which pays while few steps are clipped. Part of decide.h.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenuto {

// What is known of it.
struct UpdateChoice {
  // Steps without a clipped one before a barrier is given up.
  static constexpr int32_t kCalmSteps = 10;

  int32_t calm = 0;             // committed steps since the last that was clipped
  int32_t ask_at = kCalmSteps;  // how calm it is to be before the question is put (again)
  double clipped = 0;           // share of the steps that are clipped, the last some 16 of them
  double bearable = 0;          // share up to which the plan in force is faster than a barrier

  // A step is final.
  void note(bool was_clipped) {
    constexpr double kWeight = 1.0 / 16;
    clipped += kWeight * ((was_clipped ? 1 : 0) - clipped);
    calm = was_clipped ? 0 : calm + 1;
    if (was_clipped) ask_at = kCalmSteps;
  }
  // True when it is to be asked whether steps ahead of the norm would be faster; not again before
  // it has been calm for twice as long.
  bool take_question() {
    if (calm < ask_at) return false;
    ask_at = 2 * std::max(calm, 1);
    return true;
  }
  // True when steps may go ahead; half of what is bearable, so that one clipped step changes
  // nothing back.
  bool allows(double share) const { return clipped <= share / 2; }
};

}  // namespace tenuto
