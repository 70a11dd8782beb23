// What becomes of the values of a step that the walk has freed, or that are left at its end, when
// they are kept for the case that another worker is lost (holding.h).
#pragma once

#include "base/result.h"
#include "runtime/step_state.h"

namespace tenuto {

// Begins the step on the device: a whole one, or the rest of one. Returns what StageCompute::begin
// does.
Result<Duration> begin_step(StepState& state);

// The walk has freed the value, `by` used it last. A value that a send or a Step used is kept,
// since other workers may need it again; others are discarded: an input of another op was received,
// and its sender keeps it.
void free_value(StepState& state, const Value& value, const Op& by);

// The run is over: what is in the store now is all that the worker has of the step.
void end_step(StepState& state);

}  // namespace tenuto
