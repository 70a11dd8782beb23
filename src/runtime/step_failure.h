// Why a step fails, in words, and the clean stop after it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/step_reductions.h"
#include "runtime/step_state.h"

namespace tenuto {

// Which worker, stage and step: the beginning of every sentence.
std::string place_of(const StepState& state);

// The error, with the place, the op at `index` and the peer added to its sentence; `peer` -1 =
// none.
Error explain(const StepState& state, int32_t index, const Error& error, WorkerId peer);

// The error of a step in which nothing has ended for too long. `heads`: the ops that the walk lets
// start.
Error silence_of(const StepState& state, const StepReductions& reductions,
                 std::span<const int32_t> heads);

// The error of the loss of `peer`, if this worker still has ops with it. Otherwise ok: a peer that
// leaves after its last op with this worker does not end the step.
Status loss_of(const StepState& state, WorkerId peer, const Error& error);

// Ends all calls that are under way, as run_step says; adds to the error what could not be ended.
// Returns the compute ops that ended without an error meanwhile.
std::vector<int32_t> end_calls(StepState& state, StepReductions& reductions, Error& error);

}  // namespace tenuto
