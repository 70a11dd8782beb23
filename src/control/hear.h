// What a worker's report says to the coordinator, and when a worker has been silent for too long.
// Parts of decide.h.
#pragma once

#include <optional>
#include <string>

#include "control/decision_part.h"
#include "control/state.h"
#include "protocol/report.h"

namespace tenuto {

// Takes a report of a member. An outdated report changes nothing: one that is older than the newest
// report, or that comes from a replaced process or an earlier run.
DecisionPart hear_report(const State& state, const Report& report, Duration now);

// How long a worker may say nothing.
Duration silence_of(const State& state);

// If the coordinator itself has stalled, extends every worker's silence deadline by the stall.
DecisionPart hear_clock(const State& state, Duration now);

// A worker that is to be declared dead, and why: the end of a sentence that begins with its name.
struct MissingWorker {
  WorkerId worker;
  std::string fate;
};

// The worker that has been silent, or suspect, for too long. Of several suspects, those whose
// stream has ended come first, and of these the one that was suspected first.
std::optional<MissingWorker> find_missing(const State& state, Duration now);

}  // namespace tenuto
