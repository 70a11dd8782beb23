// Layers move from a worker to another one that works too, while steps go on:
// docs/decisions/070. Parts of decide.h.
//
// The receiver of a layer becomes a further holder of it, by a plan in which it runs none of the
// layer's ops but takes part in its sums and updates, and gets the state in parts between steps, as
// a joiner does (join.h). When every receiver has the whole state of a committed version, it holds
// the layer in the donor's place, by a plan in which it runs the donor's ops. Until that plan is
// proposed the donor counts as the holder, and from then on the receiver: a new epoch that begins
// before forgets what was received, and one that begins later forgets what the donor still has.
#pragma once

#include "control/decision_part.h"
#include "control/input.h"
#include "control/state.h"

namespace tenuto {

// Begins the moves that the planner has found. With Rules::layers Observe only says what they would
// gain.
//
// Requires: is_plan_adopted(state), not is_receiving(state), and the moves are of the present plan
DecisionPart give_layers(const State& state, const Planned& planned);

// Once all receivers have the whole state, makes them the holders of the layers.
//
// Requires: is_plan_adopted(state), and State::transfer
DecisionPart finish_layers(const State& state);

}  // namespace tenuto
