// Keeps or discards the values of a step that the walk has freed or that are left at its end. Kept
// values are needed when another worker is lost (holding.h).
#pragma once

#include "base/result.h"
#include "runtime/step_state.h"

namespace tenuto {

// Begins the step on the device: a whole one, or the rest of one. Returns what StageCompute::begin
// does.
Result<Duration> begin_step(StepState& state);

// The walk has freed the value; `by` used it last. If the worker has a Holding, keeps an activation
// or gradient that a Send has sent, and a total that a Step has used, because other workers may
// need them again. Discards all other values: if one was received, its sender keeps it.
void free_value(StepState& state, const Value& value, const Op& by);

// The run has ended or failed: tells the Holding what is in the store and which stages have
// stepped. After a whole run, first keeps the values in the store that other workers may need.
void end_step(StepState& state);

}  // namespace tenuto
