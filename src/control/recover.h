// A worker is gone and the steps go on without it: the first half of docs/decisions/020. Parts of
// decide.h.
//
// A death begins a new epoch without the dead. Everybody abandons the step, closes every connection
// of the old epoch and says at which version it is (frozen). When all that are left have said so,
// the least version is where the new epoch begins: it is the committed one, or the next when all
// have that one and nothing of its step is lost. Then all run under a plan without the dead. A
// further death before that begins a further epoch, of which the same holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/decide.h"

namespace tenuto {

// The plan to which a healthy cluster returns: the first one, or that with everybody there once the
// run has grown.
const std::shared_ptr<const Plan>& plan_of_all(const State& state);

// That plan without those who are not alive: work dealt out evenly, check()ed.
//
// Errors: Infeasible/Job  nobody who lives holds a stage
//         Invalid/Job     no such plan can be run: the run has none, or a worker holds both of two
//                         stages that share a weight
Result<Plan> plan_of_the_living(const State& state);

// The cluster is planned without the worker, until it comes.
void leave_out(Planning& planning, WorkerId worker);

// Likewise, and without what was seen of the worker and its links.
void forget_worker(Planning& planning, WorkerId worker);

// True when some worker of the run has died, or has not come to a run that has grown.
bool is_reduced(const State& state);

// Begins an epoch without `dead`, who died of `cause`, under `plan`, or a better one if the planner
// has one in time: it is asked. Returns the sentence of it.
//
// Requires: the worker is no longer alive in out.state
std::string begin_recovery(Decision& out, WorkerId dead, const std::string& cause, Plan plan,
                           Duration now);

// True when every member has said at which version it is, in this epoch.
bool all_have_frozen(const State& state);

// True when the step after the committed version is done at every member, and known.
bool is_step_done(const State& state, const StepRecord& step);

// All run again from the committed version on, under the plan without the dead. `redone`: what was
// done of the step that begins there is given up. Returns the sentence of it.
std::string begin_again(Decision& out, bool redone);

// Once for each recovery, when the first worker has begun again: how long that took.
std::string note_resumption(Decision& out, Duration now);

}  // namespace tenuto
