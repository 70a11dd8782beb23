// Why a run cannot go on, and which version is saved then: parts of decide.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "control/decision_part.h"
#include "control/state.h"
#include "control/store.h"

namespace tenuto {

// The failure that a worker has reported in this epoch.
struct WorkerFailure {
  std::string sentence;  // with its name
  Code code = Code::Invalid;
};

// Of the workers that have failed in this epoch, the failure of the one with the lowest number.
std::optional<WorkerFailure> find_failure(const State& state);

// Why the run ends if a loss or a gradient is not finite; none if all are finite.
std::optional<LastResort> find_bad_numbers(const State& state);

// Why the run ends if the next version can never be committed: all workers have done its step, but
// a loss of the step is lost. None if all losses are known.
std::optional<LastResort> find_lost_part(const State& state);

// Why the run ends when `cause` happens now. If the run is recovering or salvaging already, the
// earlier causes come first.
LastResort end_with(const State& state, const std::string& cause);

// Gives up the step for good. All begin an epoch in which nothing runs; their next reports show
// what can be saved.
DecisionPart abandon(const State& state, LastResort why, Duration now);

// The stage that no living worker holds; none if each has a holder.
std::optional<size_t> stage_without_holder(const State& state);

// The version that is saved before the run ends.
struct SalvageTarget {
  int64_t version = -1;  // -1: the live workers have no common version
  std::string given_up;  // why it is not the newest version; empty if it is
};

// The newest version that every stage still has and whose losses are all known; none until all
// living workers have answered.
std::optional<SalvageTarget> choose_target(const State& state);

// The exit code of a run that cannot begin because a worker has failed. 75 = worth another try: a
// peer that was out of reach may be reachable then.
int exit_code_of(Code failure);

}  // namespace tenuto
