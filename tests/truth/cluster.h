// A whole cluster in one process, for truth_test: one thread per worker, the real loop, the real
// engine, messages through memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/layer_move.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// What a run of the cluster left behind.
struct ClusterResult {
  std::vector<double> losses;       // per step, folded in micro-batch order, divided by their count
  std::vector<std::string> shards;  // one per stage, written at the end
};

// The plan that the job asks for.
Plan plan_of(const Job& job);

// Trains steps [first, last) by the plan, with the slow links and slow workers of the job's faults.
// Begins from the shards `resume` if there are any, and writes one shard per stage into
// `directory`. A worker that holds nothing is absent. Any failure ends the test program.
ClusterResult run_cluster(const Job& job, const Plan& plan, int64_t first, int64_t last,
                          const std::vector<std::string>& resume, const std::string& directory);

// The same, by the plan that the job asks for.
ClusterResult run_cluster(const Job& job, int64_t first, int64_t last,
                          const std::vector<std::string>& resume, const std::string& directory);

// A phase of a run: the steps under one plan.
struct PlannedSteps {
  Plan plan;
  int64_t first = 0;  // the step from which the plan is in force
  // Layers whose state moves in this phase, from a holder to a holder that does not run them. It is
  // sent in parts between steps. There must be several parts, and all must arrive in this phase.
  std::vector<LayerMove> moves = {};
};

// Trains the phases one after the other, up to step `last` (exclusive), and writes one shard per
// stage into `directory`. From the first step of a phase on, workers hold the stages that its plan
// gives them. Any failure ends the test program.
ClusterResult run_phases(const Job& job, const std::vector<PlannedSteps>& phases, int64_t last,
                         const std::string& directory);

}  // namespace tenuto
