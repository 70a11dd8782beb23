// From what the workers measured to a change of plan: detection, the question for a better plan,
// and the change at one step boundary. Parts of decide.h.
//
// A plan is wanted when detection has changed the cluster. Somebody computes it beside the steps
// (PlanRequest, Planned). It is told at once, and when every worker has acknowledged it, it is put
// in force from the step after next: nobody can have begun that one, and whoever begins it has
// heard of the plan, because it had to hear of a commit that was told later.
#pragma once

#include "control/decide.h"

namespace tenuto {

// The planning before the first step.
Planning begin_planning(const Rules& rules);

// Learns what all members said of `step`, which has just been committed; findings go to
// out.verdicts.
void learn_step(Decision& out, int64_t step);

// Does what is due while steps run: asks for a plan, proposes one, puts one in force. Returns the
// sentence of what it has done, or nothing.
std::string advance_plan(Decision& out);

// What a planner is asked now, in the place of `present`: with the op times and the cluster as they
// have been measured.
PlanRequest question_of(const State& state, std::shared_ptr<const Plan> present, bool routing);

// Asks for a plan for the cluster as it is now, in the place of `present`, whatever else was asked
// for.
void ask_for_plan(Decision& out, std::shared_ptr<const Plan> present, bool routing);

// Takes in the answer to a request; as advance_plan.
std::string take_planned(Decision& out, const Planned& planned);

// From now on slow links are treated so; the sentence of that.
std::string treat_slow_links(Decision& out, SlowLinks how);

// True when two wishes are of one kind and of one link or worker: the later takes the other's
// place.
bool concern_one_thing(const Fault& one, const Fault& other);

// From a step on that nobody has begun the link or the worker is rehearsed as slow as `wanted`
// says, instead of what was wanted of it before; the sentence of that.
std::string rehearse(Decision& out, const Fault& wanted);

// The plan that `step` ran under.
std::shared_ptr<const Plan> plan_of(const Planning& planning, int64_t step);

// Tells of a plan, which is in force once all know it. Returns the sentence of it.
//
// Requires: is_settled(state)
std::string propose(Decision& out, std::shared_ptr<const Plan> plan, const std::string& reason);

// True when everybody has changed to the present plan: there is a place for another one.
bool is_settled(const State& state);

}  // namespace tenuto
