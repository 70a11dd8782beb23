// A process comes to the place of a worker that is gone, or has never been there, while steps go
// on: docs/decisions/027.
// Parts of decide.h.
//
// It comes forward with a higher incarnation and is invited: it makes its device and its wire. When
// it is ready and the present plan has settled, it becomes a member under a plan in which it runs
// nothing, but takes part in every sum and every update of its stages. Between any two steps a
// holder of the stage gives it a part of the state, which the updates that it takes keep right.
// When it has all of it, as of a version that is committed, it is a worker like the others, and a
// plan that gives it work follows. Both plans come into force as any other (docs/decisions/012): no
// step is lost, and nobody waits.
//
// A new epoch takes the place away from whoever has not all of the state: it begins anew.
#pragma once

#include <string>
#include <vector>

#include "control/decide.h"

namespace tenuto {

// True when the worker is alive and has the state of its stages.
bool has_state(const Member& member);

// False for a place that no process has had in this run.
bool has_come(const Member& member);

// True when somebody is a member without having all of the state.
bool is_learning(const State& state);

// What is told of those who come: whom the coordinator has invited, and whom it has given a place.
std::vector<Newcomer> newcomers_of(const State& state);

// Hears a report of a process that comes to a place which nobody has. True when it was one: it says
// nothing of the members.
bool hear_newcomer(Decision& out, const Report& report, Duration now);

// What was invited to the place of `worker` is no more: its process has ended, or its conversation.
void forget_newcomer(Decision& out, WorkerId worker, const std::string& why);

// Whoever has not all of the state has no part in the epoch that begins, and is invited anew.
void send_back_learners(State& state);

// What follows from the state as it is: places are given, and work to those who have learned.
// Returns the sentence of it.
std::string advance_joining(Decision& out, Duration now);

}  // namespace tenuto
