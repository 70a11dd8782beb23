// The part of the state that concerns plans: its initial value, and functions for the parts of the
// coordinator's logic that ask for plans and propose them (recover.h, replan.h, join.h).
#pragma once

#include <memory>
#include <string>

#include "control/decision_part.h"
#include "control/state.h"

namespace tenuto {

// The planning before the first step.
Planning begin_planning(const Rules& rules);

// From now on plans are made for a cluster without the worker, until it joins.
void leave_out(Planning& planning, WorkerId worker);

// As leave_out(); also forgets what was measured of the worker and its links.
void forget_worker(Planning& planning, WorkerId worker);

// Puts the worker back into the cluster that plans are made for, as the job describes it.
void readmit(Planning& planning, const Rules& rules, WorkerId worker);

// The request for a plan that would replace `present`, with the op times and the cluster as they
// have been measured.
PlanRequest question_of(const State& state, std::shared_ptr<const Plan> present, bool routing);

// Sends a plan to the workers; it is put in force once all have acknowledged it. `interim`: another
// plan is to follow it.
//
// Requires: is_plan_adopted(state)
DecisionPart propose(const State& state, std::shared_ptr<const Plan> plan,
                     const std::string& reason, bool interim = false);

}  // namespace tenuto
