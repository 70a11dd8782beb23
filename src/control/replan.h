// From the workers' measurements to a change of plan: detection, the request for a better plan, and
// the change at one step boundary. Parts of decide.h.
//
// A plan is requested when detection has changed the cluster. It is computed while steps go on
// (PlanRequest, Planned), then sent to the workers. When every worker has acknowledged it, it is
// put in force from the step after next. No worker can have begun that step; and a worker that
// begins it knows that the plan is in force, because it must first hear of a commit that is sent
// after the plan was put in force.
#pragma once

#include "control/decision_part.h"
#include "control/input.h"
#include "control/planning.h"
#include "control/state.h"

namespace tenuto {

// Updates the measurements of the cluster from all members' reports of `step`, which is committed
// next.
DecisionPart measure_step(const State& state, int64_t step);

// Does what is due while steps run: asks for a plan, proposes one, puts one in force.
DecisionPart advance_plan(const State& state);

// Handles the answer to a request.
DecisionPart take_planned(const State& state, const Planned& planned);

// Treats what `key` names as `how` says from now on. The plan in force stays for now, and moves of
// layers that have begun are finished.
DecisionPart treat(TreatmentKey key, Treatment how);

// Has `steps` steps traced, from the first one on that no worker can have begun.
DecisionPart trace_next(const State& state, int64_t steps);

// Injects the fault `wanted` from the first step on that no worker can have begun. It replaces an
// earlier request of this kind for the same links or worker.
DecisionPart inject(const State& state, const Fault& wanted);

}  // namespace tenuto
