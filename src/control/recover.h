// A worker is lost and the steps go on without it: the first half of docs/decisions/020. Parts of
// decide.h.
//
// A death begins a new epoch without the dead worker. Every worker abandons the step, closes all
// connections of the old epoch and reports its version (frozen). When all survivors have reported,
// the coordinator commits the next version too, if all have it, all losses of its step are known,
// and it need not be saved before its commit. Then all run on from the committed version, under a
// plan without the dead. If another worker dies before that, one more epoch begins in the same way.
#pragma once

#include <string>

#include "control/decision_part.h"
#include "control/query.h"
#include "control/state.h"

namespace tenuto {

// What the workers do in a step, for people: "step 3", or "the held-out pass" in a run that only
// evaluates.
std::string name_of_work(const State& state, int64_t step);

// Begins an epoch without the worker `dead`, which died of `cause`, under `plan`. Also asks the
// planner for a better plan, which is taken if it comes in time.
//
// Requires: the worker is no longer alive in `state`
DecisionPart begin_recovery(const State& state, WorkerId dead, const std::string& cause, Plan plan,
                            Duration now);

// Lets all run again from the committed version on, under the plan without the dead. `redone`: the
// step that begins there was under way before; it is done again unless only its rest is run.
DecisionPart begin_again(const State& state, bool redone);

// Once in each recovery, when the first worker has begun to run again: says how long that took.
DecisionPart note_resumption(const State& state, Duration now);

}  // namespace tenuto
