// What follows for a worker from its plan, its events and its instructions; parts of worker_run.h.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "protocol/report.h"
#include "world/event.h"

namespace tenuto {

// The peers that the worker exchanges messages with under the plan.
std::set<WorkerId> peers_of(const Plan& plan, WorkerId self);

// "stage 3", "stages 1, 5".
std::string names_of(const std::vector<StageId>& stages);

// True when the step was taken and all its losses are numbers.
bool is_finite(const StepSummary& summary);

// Notes when the first op of the step began and the last weight gradient ended, which is where the
// update begins.
void note_device_time(const std::vector<Event>& events, StepSummary& summary);

// The entry for this process among the joiners; null: it has none.
const Joiner* joiner_in(const Instruction& told, WorkerId self, int32_t incarnation);

// The workers that `self` sends state to or receives it from, according to `told`.
std::set<WorkerId> transfer_peers(const Instruction& told, WorkerId self);

// True when this process is a member of the run, or one of its joiners.
bool is_awaited(const Instruction& told, WorkerId self, int32_t incarnation);
// True when the run goes on without this process: its worker is no member, or another process has
// its place. False while the coordinator has not heard from any process of its worker yet.
bool is_replaced(const Instruction& told, WorkerId self, int32_t incarnation);

// How many of the addresses ("host:port") are at the host of `own`. None while one is not known.
std::optional<int32_t> workers_beside(const std::vector<std::string>& addresses,
                                      const std::string& own);

// Writes a line of the worker's log.
void say(const std::string& sentence);

}  // namespace tenuto
