// A coordinator begins in the middle of a run: the previous coordinator is gone, the workers run
// on.
//
// What was decided is in the store; what the workers have done since is in their reports, which
// they repeat to any coordinator (docs/decisions/028). No worker freezes. A worker runs on until
// its update needs a commit that it has not been told of.
#pragma once

#include <memory>

#include "control/state.h"
#include "control/store.h"

namespace tenuto {

// The plans that the facts name.
struct PlansOfFacts {
  std::shared_ptr<const Plan> present, previous;
};

// The state of a run that has begun, as its facts say. `rules`: those that the run was begun with,
// except `term`, which is above that of the facts, and `saved`, the newest checkpoint on disk.
// Members that do not report within the usual silence limit are dead. If joiners were receiving the
// state, an epoch begins without them, because the store does not say which parts they have. If the
// members were to run only what is left of a step, an epoch begins too, and what is left is
// computed again, because some members may not have been told it.
//
// Requires: facts.begun, and members that are workers of the rules' plan
State take_up(const Rules& rules, const Facts& facts, const PlansOfFacts& plans, Duration now);

// The state of a run whose workers have not been told to run: it begins anew, in the newest epoch
// that any worker has been told of. If the facts say that the run has ended, so does the state.
//
// Requires: !facts.begun
State take_up_beginning(Rules rules, const Facts& facts, Duration now);

}  // namespace tenuto
