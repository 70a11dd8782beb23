// The shortest step of tiny loads, found with proof. It shares nothing with the planner but the
// loads.
#pragma once

#include "adapt/layout/problem.h"

namespace tenuto {

// The makespan of the best order: over all orders of forwards and backwards of each stage and, with
// half duplex, of each link. Of each kind, micro-batches run in their order; for equal
// micro-batches no other order is faster.
//
// Branch and bound. Of the ops that could run next, let X be the one that would end first. The
// search tries only those ops of X's stage or link that could start before X ends: X could run
// before any later one without delaying it.
//
// Requires: small loads; the cost grows exponentially, 1 ms or less for 4 stages and 4
// micro-batches Source:   Giffler and Thompson, "Algorithms for solving production-scheduling
// problems", 1960
double exact_makespan(const LayoutLoads& loads);

}  // namespace tenuto
