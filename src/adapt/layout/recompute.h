// Layouts in which stages recompute, for problems in which no layout fits into memory otherwise.
#pragma once

#include <optional>

#include "adapt/layout/problem.h"
#include "adapt/layout/search.h"
#include "base/watch.h"

namespace tenuto {

// The layouts that fit into memory when each stage that does not fit otherwise recomputes, with the
// step of each by the best of five policies. All stages of a layout have equally many replicas; in
// a problem with few devices, any numbers. Leaves lower_bound at 0.
//
// Idea: a dynamic program for each number N of stages and for some orders of the devices. Stage n
// has min(micros, N - n) micro-batches in flight, as in memory_shortage(), so N decides what a
// stage must hold, and the program can tell for each range of layers and devices whether it fits.
// It finds the layout with the least load of the busiest stage; links count only in the step.
//
// Returns: nothing when no such layout fits. With few layers and devices, then none exists; with
//          more, one with unequal numbers of replicas may.
// Cost:    O(N L^2) for L layers and each N that is tried, some 64 of them at most
std::optional<LayoutSearch> search_recomputing(const LayoutProblem& problem, Watch* watch);

}  // namespace tenuto
