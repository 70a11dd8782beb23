// How long the iterations of replicas take: drawn times, with replicas that are slow always, at
// times, or at random.
//
// The scenarios are those of the reference experiment (docs/sync-modes.md) and new ones beside
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unit.h"
#include "sync/trial_step.h"

namespace tenuto {

// One iteration of a replica without any waiting: its gradient, and its way there and back. The
// compute time is that of a whole share of micro-batches.
struct IterationTime {
  Duration compute{}, transfer{};
  bool operator==(const IterationTime&) const = default;
};
// The time of an iteration of a replica that begins now.
using IterationTimes = std::function<IterationTime(int32_t replica, int64_t iteration, Duration)>;

// A replica that is slower than the others.
struct SlowReplica {
  int32_t replica = 0;
  double compute = 1, transfer = 1;  // its times are multiplied by these
  bool operator==(const SlowReplica&) const = default;
};

// Who is slow for a while.
struct SlowPhase {
  std::optional<Duration> length;  // none = for ever; a phase of length zero is skipped
  std::vector<SlowReplica> slow;
  double chance = 0;      // of each iteration of each replica ...
  double transfer = 1;    // ... to have its transfer time multiplied by this
  bool in_pairs = false;  // replicas 2i and 2i + 1 have this bad luck together
  bool operator==(const SlowPhase&) const = default;
};

// Replicas with drawn times.
struct SyncScenario {
  std::string name;
  int32_t replicas = 8;
  IterationTime base;  // the mean times of a replica that is not slow
  double compute_jitter = 0.04, transfer_jitter = 0.10;  // deviations of the lognormal factors
  Duration apply{};                                      // of one update, one after the other
  // One after the other, and again from the first unless one lasts for ever; empty = nobody is
  // slow.
  std::vector<SlowPhase> phases;
  TrialOptimizer optimizer = TrialOptimizer::Sgd;  // what a trial trains with (sync/trial.h)
  bool operator==(const SyncScenario&) const = default;
};

// The eight scenarios of the reference experiment, then the new ones. Each is a file, too
// (examples/sync/scenarios), for people who change one.
const std::vector<SyncScenario>& sync_scenarios();
// The scenario of this name; nullptr = there is none.
const SyncScenario* find_sync_scenario(std::string_view name);

// Phases, one after the other, up to one that lasts for ever, or all.
struct PhaseRound {
  Duration length{};    // of those before the one that lasts for ever
  bool repeats = true;  // there is no such one
};
// One round of the scenario's phases.
PhaseRound round_of(const SyncScenario& scenario);

// Whether no phase has a length below zero, and, if there are phases, one of them is not skipped.
bool has_right_phases(const SyncScenario& scenario);

// The times of a scenario: a pure function of the seed, the replica and its iteration, and of the
// phase at that moment. So all modes have the same luck.
//
// Requires: has_right_phases
IterationTimes times_of(const SyncScenario& scenario, uint64_t seed);

// Times drawn from what was measured: for each replica at least one sample; which one, follows from
// the seed, the replica and the iteration.
IterationTimes times_of(std::vector<std::vector<IterationTime>> samples, uint64_t seed);

// A factor with mean 1 and about this deviation, lognormal; a pure function of the key.
double lognormal(double deviation, uint64_t key);
// A standard normal number; a pure function of the key.
double normal(uint64_t key);

}  // namespace tenuto
