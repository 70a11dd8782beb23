// Chooses the kind of update, for runs that choose it by themselves: a barrier in each step, or
// steps ahead of the norm, which are faster while few steps are clipped. Part of decide.h.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenuto {

// What the choice is made from.
struct UpdateChoice {
  // After so many steps in a row without clipping, the planner is first asked whether steps ahead
  // of the norm would be faster.
  static constexpr int32_t kCalmSteps = 10;

  int32_t calm = 0;             // committed steps since the last that was clipped
  int32_t ask_at = kCalmSteps;  // the value of `calm` at which to ask (again)
  double clipped = 0;           // share of clipped steps, among about the last 16
  double bearable = 0;          // share up to which the plan in force is faster than a barrier

  // Counts a step that is final.
  void note(bool was_clipped) {
    constexpr double kWeight = 1.0 / 16;
    clipped += kWeight * ((was_clipped ? 1 : 0) - clipped);
    calm = was_clipped ? 0 : calm + 1;
    if (was_clipped) ask_at = kCalmSteps;
  }
  // True when it is time to ask whether steps ahead of the norm would be faster.
  bool is_question_due() const { return calm >= ask_at; }
  // Notes that the question was asked. It is due again when `calm` has doubled.
  void note_question() { ask_at = 2 * std::max(calm, 1); }
  // `share`: the share of clipped steps up to which steps ahead of the norm are faster. True when
  // the present share is at most half of it, so that one clipped step does not bring the barrier
  // back.
  bool allows(double share) const { return clipped <= share / 2; }
};

}  // namespace tenuto
