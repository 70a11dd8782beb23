// What follows from the coordinator's state without changing it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/state.h"
#include "control/store.h"
#include "monitor/monitor.h"
#include "protocol/report.h"
#include "world/seats.h"

namespace tenuto {

// "worker 3 (stage 1 of pipeline 1)".
std::string name_of(const Rules& rules, WorkerId worker);

// The places of the workers of a run.
Seats seats_of(const Rules& rules);

// What is slow as a whole when this link is, as `monitor` has judged all links
// (monitor/slow_scope.h); empty = the link alone.
std::string scope_of_link(const State& state, const MonitorState& monitor,
                          std::pair<WorkerId, WorkerId> link);

// Seconds as text for sentences, such as "1.5".
std::string seconds(Duration duration);

// The part of the state that must be in the store before its instruction is sent.
Facts facts_of(const State& state);

// True when the run has a worker of that number.
bool is_worker(const State& state, WorkerId worker);

// What is known of a worker of the run.
const Member& member_of(const State& state, WorkerId worker);

// True when the worker is alive and has the state of its stages.
bool has_state(const Member& member);

// True when some process has had this worker's place in this run.
bool has_come(const Member& member);

// The workers whose Member::joining is `how`, ascending.
std::vector<WorkerId> all_who(const State& state, Joining how);

// True when a joiner is receiving the state of its stages, or a worker that of a layer that moves
// to it.
bool is_receiving(const State& state);

// True when some worker of the run has died, or has not come to a run that has grown.
bool is_reduced(const State& state);

// True when every member has reported its version, frozen, in this epoch.
bool all_have_frozen(const State& state);

// True when a checkpoint of `version` has all its shards.
bool has_all_shards(const State& state, int64_t version);

// The plan to which a healthy cluster returns: the first one or, once the run has grown
// (State::grown), the one with all workers. If layers have moved, they stay where they are now.
const std::shared_ptr<const Plan>& plan_of_all(const State& state);

// Computes State::moved, which plan_of_all() returns once layers have moved: the plan for the
// holders in State::stages. Null if these are the same as in Rules::stages.
std::shared_ptr<const Plan> plan_of_moved(const State& state);

// plan_of_all() without the workers that are not alive: their work is dealt out evenly, and the
// plan passes check().
//
// Errors: Infeasible/Job  some stage has no living holder
//         Invalid/Job     no such plan can be run: the run has none, or a worker holds both of two
//                         stages that share a weight
Result<Plan> plan_of_the_living(const State& state);

// plan_of_the_living() if `worker` were not alive either.
Result<Plan> plan_without(const State& state, WorkerId worker);

// True when two requested faults have the same kind and the same links or worker: the later one
// replaces the earlier one.
bool concern_one_thing(const Fault& one, const Fault& other);

// The plan that `step` ran under.
std::shared_ptr<const Plan> plan_of(const Planning& planning, int64_t step);

// True when every worker has changed to the present plan, so that another one may be proposed.
bool is_plan_adopted(const State& state);

}  // namespace tenuto
