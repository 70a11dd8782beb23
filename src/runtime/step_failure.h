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

// The error with the op at `index` and its peer in its sentence; no peer: -1.
Error explain(const StepState& state, int32_t index, const Error& error, WorkerId peer);

// The error of a step in which nothing has ended for too long. `heads`: the ops that the walk lets
// start.
Error silence_of(const StepState& state, const StepReductions& reductions,
                 std::span<const int32_t> heads);

// The loss of `peer` ends the step if this worker still has ops with it. That a peer only left
// early, with all its ops done, does not.
Status loss_of(const StepState& state, WorkerId peer, const Error& error);

// Leaves nothing under way, see run_step; adds to the error what could not be ended. Returns the
// compute ops that have ended well meanwhile.
std::vector<int32_t> end_calls(StepState& state, StepReductions& reductions, Error& error);

}  // namespace tenuto
