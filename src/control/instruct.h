// What all workers are told, read off the state: parts of decide.h.
#pragma once

#include <vector>

#include "control/decide.h"

namespace tenuto {

// The version that will be saved next; -1 = none.
int64_t next_save(const State& state);

// By stage, the holder that saves `version`: while salvaging one from which it can be had; none
// where there is nobody. Empty for -1.
std::vector<WorkerId> choose_savers(const State& state, int64_t version);

// All that the workers are to know now, but for its sequence.
Instruction instruction_of(const State& state);

}  // namespace tenuto
