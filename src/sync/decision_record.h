// Decisions and what each mode achieves after them, on the virtual clock: what a learned chooser is
// trained on, and what all choosers are measured by.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/chooser_model.h"
#include "sync/scenario.h"

namespace tenuto {

// A cluster with drawn times: nobody is slow, some compute or transfer slowly, all do, or transfers
// are slow at random as well. A pure function of its arguments; none of the named scenarios.
//
// Requires: a replica
SyncScenario draw_scenario(int32_t replicas, uint64_t seed);

// Lets each replica of the scenario run without waiting until `moment`, and then runs every mode of
// modes_to_compare, and the heuristic's, from there on for 50 median iterations and five of the
// slowest replica, of which the first ten and one are not measured. The input holds what was known
// at that moment: the last iterations, and first_mode as the mode in force. Its gradient noise is
// so large that an update of K gradients is worth K of them, which is how progress counts here.
//
// Requires: at least two replicas; times above zero
// Cost:     modes x 50 or more iterations of each replica
DecisionRecord record_decision(const SyncScenario& scenario, uint64_t seed, Duration moment,
                               double kappa);

// Decisions at so many drawn moments, each with a seed of its own.
std::vector<DecisionRecord> record_decisions(const SyncScenario& scenario, uint64_t seed,
                                             int64_t decisions, double kappa);

}  // namespace tenuto
