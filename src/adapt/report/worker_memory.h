// What the workers of a plan need in memory, and what they have.
#pragma once

#include <string>
#include <vector>

#include "adapt/layout/problem.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"

namespace tenuto {

// A worker with a limited memory that holds a stage.
struct WorkerMemory {
  WorkerId worker;
  double needed = 0, has = 0;  // bytes
  // Whether the memory suffices.
  bool fits() const { return needed <= has; }
};

// All of them, ascending. Each needs the state of its stages and as many micro-batches as the
// price says that it holds at once, by the same rule by which a plan is made (HeldBytes).
std::vector<WorkerMemory> memory_of_workers(const LayoutProblem& problem, const Plan& plan,
                                            const Cluster& cluster, const Timeline& timeline);

// "worker 2 needs 1610612736 bytes (1.50 GiB) of memory and has 1073741824 bytes (1.00 GiB)": the
// worker that misses most, and how many others miss memory; empty if all fit.
std::string shortage_text(const std::vector<WorkerMemory>& workers);

}  // namespace tenuto
