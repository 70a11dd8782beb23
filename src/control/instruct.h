// Derives from the state what all workers are told: parts of decide.h.
#pragma once

#include <vector>

#include "control/state.h"
#include "protocol/report.h"

namespace tenuto {

// The version that will be saved next; -1 = none.
int64_t next_save(const State& state);

// By stage, the holder that saves `version`: while salvaging, one that holds it or can get back to
// it by one undo; none for a stage that has no such holder. Empty for -1.
std::vector<WorkerId> choose_savers(const State& state, int64_t version);

// The joiners that the workers are told of: those that are invited, and those with a place.
std::vector<Joiner> joiners_of(const State& state);

// All that the workers are to know now. The sequence is not filled in.
Instruction instruction_of(const State& state);

}  // namespace tenuto
