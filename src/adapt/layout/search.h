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
  int64_t blocks = 40'000'000;  // ops and transfers in simulated steps, some 13 ns each, for up to
                                // 200 layers; in proportion for more. Other work is counted in
                                // blocks, too. The first candidates are priced in any case.
  int64_t layouts = 200'000;    // partly made layouts of a complete search, which a small problem
                                // gets; if they do not suffice, it is searched like a large one
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
// devices, forwards and backwards, and the layouts of all other planners (of MinCut only where that
// is quick); simulates those whose least_makespan() is near the best so far or below it; then
// changes the best ones (moves of cuts, devices, stages) and their order of ops while this shortens
// the step. A small problem is searched completely instead. No stage of these layouts recomputes;
// only if none of them fits into memory, search_recomputing() finds layouts whose stages do. Ends
// when the effort is spent or lower_bound is reached. Deterministic, unless the watch ends it: then
// it returns the best so far.
//
// Cost:   some 0.6 s for up to 64 devices and 200 layers, and for 4,096 devices in whole nodes; in
//         proportion for more layers, and more where memory is scarce. Small problems: milliseconds
// Errors: Infeasible/Job  no layout fits into memory: the stage and the bytes missing
Result<LayoutSearch> search_layout(const LayoutProblem& problem, const LayoutEffort& effort = {},
                                   Watch* watch = nullptr);

}  // namespace tenuto
