// The best order of a tiny line, proved.
#pragma once

#include <cstdint>
#include <optional>

#include "adapt/line.h"

namespace tenuto {

// A search that ended.
struct Exact {
  Duration makespan{};  // of the best order
  int64_t nodes = 0;    // partial orders looked at
};

// The shortest step of any order within the rooms, by branch and bound: of the ops that could be
// next, take the one that would end first; some best order runs next on its stage one that could
// start before that end, because otherwise that op could go first and delay nothing. `known` is the
// time of some order. Nothing when more than `most_nodes` would have to be looked at.
//
// Requires: at most 4 stages and 15 micro-batches; a weight gradient put off takes no more room
// than
//           its micro-batch did before
// Source:   Giffler and Thompson, "Algorithms for solving production-scheduling problems", 1960
std::optional<Exact> exact_makespan(const Line& line, Duration known,
                                    int64_t most_nodes = 50'000'000);

// The same by trying every order: what the search is held against.
//
// Cost: the number of orders of one stage (5, 42, 462 for 2, 3, 4 micro-batches) to the power of
// the
//       stages
Duration enumerated_makespan(const Line& line);

}  // namespace tenuto
