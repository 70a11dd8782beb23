// A process takes the place of a worker that is lost, or was absent from the start, while steps go
// on: docs/decisions/027. Parts of decide.h.
//
// It reports with a higher incarnation and is invited: it sets up its device and its transport.
// When it is ready and all workers have changed to the present plan, it becomes a member under a
// plan in which it runs no ops, but takes part in every all-reduce and every update of its stages.
// Between any two steps a holder of the stage sends it a part of the state; the updates that it
// takes keep that part current. When it has the whole state, as of a committed version, it is a
// worker like the others, and a plan that gives it work follows. Both plans come into force as any
// other (docs/decisions/012): no step is lost, and no worker waits.
//
// When a new epoch begins, a joiner that does not have the whole state yet loses its place and
// starts over.
#pragma once

#include <string>
#include <vector>

#include "control/decision_part.h"
#include "control/query.h"
#include "control/state.h"
#include "protocol/report.h"

namespace tenuto {

// True when the report is of a process that was invited to, or asks for, the place of a lost
// worker. Such a report says nothing about the members.
bool is_of_joiner(const State& state, const Report& report);

// Takes such a report.
//
// Requires: is_of_joiner(state, report)
DecisionPart hear_joiner(const State& state, const Report& report, Duration now);

// Drops the process that was invited to the place of `worker`, if there is such a process: it has
// ended, is silent or has failed. `why`: a clause for the reason.
DecisionPart drop_joiner(const State& state, WorkerId worker, const std::string& why);

// Takes the place from each member that does not have the whole state, and invites it anew: such a
// worker has no part in the epoch that begins.
DecisionPart send_back_joiners(const State& state);

// Drops invited joiners that are silent. Once the plan that has a place for a joiner is in force,
// requires the joiner for the commits of later versions.
DecisionPart watch_joiners(const State& state, Duration now);

// The members that receive the state, once every one of them has all of it; none before.
std::vector<WorkerId> complete_joiners(const State& state);

// Makes them workers like the others.
DecisionPart admit(const std::vector<WorkerId>& complete);

// Proposes a plan that gives work to the workers that have just joined.
DecisionPart give_work(const State& state, const std::vector<WorkerId>& joined);

// Gives places to the joiners that are ready, under a plan in which they run nothing.
DecisionPart give_places(const State& state, Duration now);

}  // namespace tenuto
