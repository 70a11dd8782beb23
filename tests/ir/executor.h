// A second opinion on `check`: runs a plan's step in the plainest way, with maps and sets, picking
// what to do next at random. It shares nothing with the code under test but effect_of.
#pragma once

#include <string>

#include "ir/plan.h"

namespace tenuto {

// "" when the step runs to its end, with all work done exactly once, nothing left over and weight
// gradients in ascending order; else what went wrong first.
std::string run_plainly(const Plan& plan, uint64_t seed);

}  // namespace tenuto
