// A whole cluster in one process, for truth: one thread per worker, the real loop, the real engine,
// messages through memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Trains steps [first, last) by the plan, over the slow links and with the slow workers of the
// job's faults, from `resume` if it is not empty, and writes one shard a
// stage into `directory`. A worker that holds nothing is absent. Ends the test program when
// anything goes wrong.
ClusterResult run_cluster(const Job& job, const Plan& plan, int64_t first, int64_t last,
                          const std::vector<std::string>& resume, const std::string& directory);

// By the plan that the job asks for.
ClusterResult run_cluster(const Job& job, int64_t first, int64_t last,
                          const std::vector<std::string>& resume, const std::string& directory);

}  // namespace tenuto
