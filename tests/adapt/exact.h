// The best order of a tiny line, found with proof.
#pragma once

#include <cstdint>
#include <optional>

#include "adapt/line.h"

namespace tenuto {

// The result of a search that ended.
struct Exact {
  Duration makespan{};  // of the best order
  int64_t nodes = 0;    // partial orders looked at
};

// The shortest step of any order within the memory limits, by branch and bound. Of the ops that
// could run next, let X be the one that would end first. The search tries only those ops of X's
// stage that could start before X ends: X could run before any later one without delaying it.
// `known` is the time of some order. Returns nothing if more than `most_nodes` partial orders would
// have to be looked at.
//
// Requires: at most 4 stages and 15 micro-batches; a postponed weight gradient takes no more memory
//           than its micro-batch took before
// Source:   Giffler and Thompson, "Algorithms for solving production-scheduling problems", 1960
std::optional<Exact> exact_makespan(const Line& line, Duration known,
                                    int64_t most_nodes = 50'000'000);

// The same by trying every order; tests compare the search with it.
//
// Cost: the number of orders of one stage (5, 42, 462 for 2, 3, 4 micro-batches) to the power of
//       the number of stages
Duration enumerated_makespan(const Line& line);

}  // namespace tenuto
