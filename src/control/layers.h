// Moves layers between two workers that both train, while steps go on: docs/decisions/070. Parts of
// decide.h.
//
// First a plan makes the receiver one more holder of the layer: it runs no forward or backward of
// it, but takes part in its all-reduces and updates, and gets the state in parts between steps, as
// a joiner does (join.h). When every receiver has the whole state of a committed version, a second
// plan gives the donor's ops to the receiver, and the donor no longer holds the layer. The donor
// counts as the holder until the second plan is proposed, and the receiver afterwards. If a new
// epoch begins before that, the receiver drops its parts; if later, the donor drops its copy.
#pragma once

#include "control/decision_part.h"
#include "control/input.h"
#include "control/state.h"

namespace tenuto {

// Begins the moves that the planner has found. If Planning::layers is not Adapt, only reports what
// they would gain.
//
// Requires: is_plan_adopted(state), not is_receiving(state), and the moves are of the present plan
DecisionPart give_layers(const State& state, const Planned& planned);

// Once all receivers have the whole state, makes them the holders of the layers.
//
// Requires: is_plan_adopted(state), and State::transfer
DecisionPart finish_layers(const State& state);

}  // namespace tenuto
