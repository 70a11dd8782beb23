// A worker is gone and the steps go on without it: the first half of docs/decisions/020. Parts of
// decide.h.
//
// A death begins a new epoch without the dead worker. Every worker abandons the step, closes all
// connections of the old epoch and reports its version (frozen). When all survivors have reported,
// the new epoch begins at the lowest version: the committed one, or the next one if all have it and
// nothing of its step is lost. Then all run under a plan without the dead. If another worker dies
// before that, one more epoch begins in the same way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/decide.h"

namespace tenuto {

// The plan to which a healthy cluster returns: the first one, or the one with all workers once the
// run has grown (State::grown).
const std::shared_ptr<const Plan>& plan_of_all(const State& state);

// plan_of_all() without the workers that are not alive: their work is dealt out evenly, and the
// plan passes check().
//
// Errors: Infeasible/Job  some stage has no living holder
//         Invalid/Job     no such plan can be run: the run has none, or a worker holds both of two
//                         stages that share a weight
Result<Plan> plan_of_the_living(const State& state);

// From now on plans are made for a cluster without the worker, until it joins.
void leave_out(Planning& planning, WorkerId worker);

// As leave_out(), and forgets what was measured of the worker and its links.
void forget_worker(Planning& planning, WorkerId worker);

// True when some worker of the run has died, or has not come to a run that has grown.
bool is_reduced(const State& state);

// Begins an epoch without the worker `dead`, which died of `cause`, under `plan`. Also asks the
// planner for a better plan, which is taken if it comes in time. Returns the sentence about it.
//
// Requires: the worker is no longer alive in out.state
std::string begin_recovery(Decision& out, WorkerId dead, const std::string& cause, Plan plan,
                           Duration now);

// True when every member has reported its version, frozen, in this epoch.
bool all_have_frozen(const State& state);

// True when every member has done `step`, the one after the committed version, and is_known(step).
bool is_step_done(const State& state, const StepRecord& step);

// Lets all run again from the committed version on, under the plan without the dead. `redone`: the
// step that begins there was under way before; it is done again unless only its rest is run.
// Returns the sentence about it.
std::string begin_again(Decision& out, bool redone);

// Once for each recovery, when the first worker has begun again: the sentence that says how long
// that took. Empty otherwise.
std::string note_resumption(Decision& out, Duration now);

}  // namespace tenuto
