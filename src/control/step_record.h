// A step as its workers have reported it: a part of decide.h.
#pragma once

#include <string>

#include "control/decision_part.h"
#include "control/state.h"

namespace tenuto {

// What is known of the step by now: losses and norms as reported, times as far as reported.
StepRecord record_of(const State& state, int64_t step);

// True when the step is reported in full: the loss of every micro-batch, and the held-out losses
// where a held-out pass followed. Only such a step is committed, even when workers have died, so
// the metrics have the losses of each committed step.
bool is_known(const StepRecord& step);

// Which part of the step was not reported, as a clause: "the losses of 2 of its 8 micro-batches are
// lost".
//
// Requires: !is_known(step)
std::string unknown_part_of(const State& state, const StepRecord& step);

}  // namespace tenuto
