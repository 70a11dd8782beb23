// From the workers' measurements to a change of plan: detection, the request for a better plan, and
// the change at one step boundary. Parts of decide.h.
//
// A plan is requested when detection has changed the cluster. It is computed while steps go on
// (PlanRequest, Planned), then sent to the workers. When every worker has acknowledged it, it is
// put in force from the step after next. No worker can have begun that step; and a worker that
// begins it knows that the plan is in force, because it first needs a commit that is sent later.
#pragma once

#include "control/decide.h"

namespace tenuto {

// The planning before the first step.
Planning begin_planning(const Rules& rules);

// Learns from what all members reported of `step`, which has just been committed; findings go to
// out.verdicts.
void learn_step(Decision& out, int64_t step);

// Does what is due while steps run: asks for a plan, proposes one, puts one in force. Returns the
// sentence about what it has done, or nothing.
std::string advance_plan(Decision& out);

// The request for a plan that would replace `present`, with the op times and the cluster as they
// have been measured.
PlanRequest question_of(const State& state, std::shared_ptr<const Plan> present, bool routing);

// Asks for a plan that would replace `present` on the cluster as it is now. The answer to an
// earlier request no longer counts.
void ask_for_plan(Decision& out, std::shared_ptr<const Plan> present, bool routing);

// Handles the answer to a request; returns the same as advance_plan().
std::string take_planned(Decision& out, const Planned& planned);

// Treats slow links as `how` says from now on. Returns the sentence about it.
std::string treat_slow_links(Decision& out, SlowLinks how);

// True when two requested faults have the same kind and the same link or worker: the later one
// replaces the earlier one.
bool concern_one_thing(const Fault& one, const Fault& other);

// From the first step on that no worker can have begun, rehearses the fault `wanted` in the place
// of what was requested of the same link or worker before. Returns the sentence about it.
std::string rehearse(Decision& out, const Fault& wanted);

// The plan that `step` ran under.
std::shared_ptr<const Plan> plan_of(const Planning& planning, int64_t step);

// Sends a plan to the workers; it is put in force once all have acknowledged it. Returns the
// sentence about it.
//
// Requires: is_settled(state)
std::string propose(Decision& out, std::shared_ptr<const Plan> plan, const std::string& reason);

// True when every worker has changed to the present plan, so that another one may be proposed.
bool is_settled(const State& state);

}  // namespace tenuto
