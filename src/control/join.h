// A process takes the place of a worker that is lost, or was absent from the start, while steps go
// on: docs/decisions/027.
// Parts of decide.h.
//
// It reports with a higher incarnation and is invited: it sets up its device and its transport.
// When it is ready and the present plan has settled, it becomes a member under a plan in which it
// runs no ops, but takes part in every all-reduce and every update of its stages. Between any two
// steps a holder of the stage sends it a part of the state; the updates that it takes keep that
// part current. When it has the whole state, as of a committed version, it is a worker like the
// others, and a plan that gives it work follows. Both plans come into force as any other
// (docs/decisions/012): no step is lost, and no worker waits.
//
// A new epoch takes the place from a worker that does not have the whole state: it starts over.
#pragma once

#include <string>
#include <vector>

#include "control/decide.h"

namespace tenuto {

// True when the worker is alive and has the state of its stages.
bool has_state(const Member& member);

// False for a place that no process has had in this run.
bool has_come(const Member& member);

// True when some member does not have the whole state yet.
bool is_receiving(const State& state);

// The joiners that the workers are told of: those that are invited, and those with a place.
std::vector<Joiner> joiners_of(const State& state);

// Handles a report of a process that wants the place of a lost worker. True when it was one: it
// then says nothing about the members.
bool hear_joiner(Decision& out, const Report& report, Duration now);

// Drops the process that was invited to the place of `worker`, if there is one: it has ended, has
// gone silent or has failed. `why`: a clause for the reason.
void forget_joiner(Decision& out, WorkerId worker, const std::string& why);

// Takes the place from each member that does not have the whole state, and invites it anew: it has
// no part in the epoch that begins.
void send_back_joiners(State& state);

// Gives places to joiners that are ready, and work to those that have the whole state.
// Returns the sentence about it; empty when nothing was done.
std::string advance_joining(Decision& out, Duration now);

}  // namespace tenuto
