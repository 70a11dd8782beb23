// When a worker is lost, the others need not run the whole step again: what each of them still
// holds determines what is left of it (adapt/salvage.h). Parts of decide.h.
#pragma once

#include "control/decision_part.h"
#include "control/state.h"

namespace tenuto {

// Computes what is left of the step after the committed version, from the parts of it that the
// survivors reported to hold. The survivors run only this rest if all of them can and if its price
// is below that of doing the step again. The reason is empty when no worker holds anything of the
// step or when some worker cannot run a rest.
//
// Requires: all_have_frozen(state)
DecisionPart find_rest(const State& state);

}  // namespace tenuto
