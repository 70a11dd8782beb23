// The search for the layout and the order of ops with the shortest step.
#pragma once

#include <string>
#include <vector>

#include "adapt/layout/baseline.h"
#include "adapt/layout/problem.h"
#include "base/result.h"
#include "base/watch.h"

namespace tenuto {

// How much a search may try. Counted, not timed, so that equal inputs give equal layouts.
struct LayoutEffort {
  int64_t blocks = 40'000'000;  // ops and transfers in simulated steps; some 10 ns each
  int64_t layouts = 200'000;    // of a search over all layouts of a small problem
};

// What the search found.
struct LayoutSearch {
  PricedLayout best;
  double lower_bound = 0;                 // least_step(): no layout has a shorter step
  std::string how;                        // which candidate it comes from, a few words
  std::optional<PricedLayout> runner_up;  // the best layout with another number of stages or other
                                          // replicas
  std::vector<Layout> shapes;  // the best layouts that differ in their numbers of replicas, the
                               // best first
  int64_t priced = 0;          // layouts whose schedules were simulated
};

// Collects candidates: the published program and the threshold program on several orders of
// devices, forwards and backwards, and all baselines; simulates those whose least_makespan() is
// below the best so far; then changes the best ones (moves of cuts, devices, stages) and their
// order of ops while this shortens the step. A small problem is searched completely. Deterministic,
// unless the watch ends it; then it returns the best so far.
//
// Errors: Infeasible/Job  no layout fits into memory: the stage, the bytes missing, what would help
Result<LayoutSearch> search_layout(const LayoutProblem& problem, const LayoutEffort& effort = {},
                                   Watch* watch = nullptr);

}  // namespace tenuto
