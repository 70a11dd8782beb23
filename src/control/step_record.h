// A step as its workers have reported it: a part of decide.h.
#pragma once

#include <string>

#include "control/decide.h"

namespace tenuto {

// What is known of the step by now: losses and norms as reported, times as far as they are told.
StepRecord record_of(const State& state, int64_t step);

// Whether all that a step tells has been reported: the loss of every micro-batch, and the held-out
// losses where a held-out pass followed. No other step is committed, whoever has died: so each
// committed step has its losses in the metrics.
bool is_known(const StepRecord& step);

// What is not reported of a step that is not known, a clause: "the losses of 2 of its 8
// micro-batches are known to nobody".
//
// Requires: !is_known(step)
std::string unknown_part_of(const State& state, const StepRecord& step);

}  // namespace tenuto
