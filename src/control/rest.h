// When a worker is lost, the others need not run the whole step again: what each of them still
// holds determines what is left of it (adapt/salvage.h). Parts of decide.h.
#pragma once

#include "control/decision_part.h"
#include "control/state.h"

namespace tenuto {

// Computes what is left of the step after the committed version, from what all survivors reported
// to hold of it. It is to be run if all can go on with it and its price is below that of doing the
// step again. The sentence about it is empty when no worker holds anything of the step.
//
// Requires: all_have_frozen(state)
DecisionPart find_rest(const State& state);

}  // namespace tenuto
