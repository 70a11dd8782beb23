// A coordinator begins in the middle of a run: the one before it is gone, the workers run on.
//
// What was decided is in the store, what workers have done since is in their reports, which they
// repeat to whoever leads (docs/decisions/028). Nobody freezes: a worker stops only where its
// update needs a commit that it has not been told, one step later at the earliest.
#pragma once

#include <memory>

#include "control/decide.h"
#include "control/store.h"

namespace tenuto {

// The plans that the facts name.
struct PlansOfFacts {
  std::shared_ptr<const Plan> present, previous;
};

// The state of a run that has begun, as its facts say. `rules`: those that the run was begun with,
// but for `term`, which is above that of the facts, and `saved`, the newest checkpoint on disk.
// Members that do not come forward within the usual silence are dead. While somebody was learning
// the state, an epoch begins without the learners: who had been given what is not known any more.
// While all run what is left of a step, an epoch begins too, and what is left is found again: some
// may not have been told.
//
// Requires: facts.begun, and members that are workers of the rules' plan
State take_up(const Rules& rules, const Facts& facts, const PlansOfFacts& plans, Duration now);

// The state of a run whose workers have not been told to run: it begins anew, in the newest epoch
// that anybody has been told of. It has ended if it ended before its first step.
//
// Requires: !facts.begun
State take_up_beginning(Rules rules, const Facts& facts, Duration now);

}  // namespace tenuto
