// A second opinion on `check`: runs a plan's step with a thread for every lane of every worker. A
// thread blocks until the values that its next op reads are there. Of the code under test it uses
// only effect_of.
#pragma once

#include <string>

#include "ir/plan.h"

namespace tenuto {

// How a run ended.
enum class Ending {
  Right,  // every lane at its end, all work done exactly once, nothing left over
  Hangs,  // every lane that is not at its end waits
  Work,   // work or a value lost, doubled or left over
  Rules,  // order or limits of the plan broken
};

// An ending, and what went wrong first.
struct Judgement {
  Ending ending = Ending::Right;
  std::string fault;
};

// Runs the step; `seed` decides which lanes hold back now and then, so that runs differ.
Judgement run_in_threads(const Plan& plan, uint64_t seed);

}  // namespace tenuto
