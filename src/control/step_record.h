// A step as its workers have reported it: a part of decide.h.
#pragma once

#include "control/decide.h"

namespace tenuto {

// What is known of the step by now: losses and norms as reported, times as far as they are told.
StepRecord record_of(const State& state, int64_t step);

}  // namespace tenuto
