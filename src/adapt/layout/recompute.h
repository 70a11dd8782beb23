// Finds layouts whose stages recompute, when no layout fits into memory without that.
#pragma once

#include <optional>

#include "adapt/layout/problem.h"
#include "adapt/layout/search.h"
#include "base/watch.h"

namespace tenuto {

// Finds layouts that fit into memory: a stage that does not fit otherwise recomputes. The step of
// each is that of the best of five policies. With few devices, stages may have different numbers of
// replicas; with many, all stages of a layout have the same number. Leaves lower_bound at 0.
//
// Idea: a dynamic program for each number N of stages and for some orders of the devices. Stage n
// has min(micros, N - n) micro-batches in flight, as in memory_shortage(). So N decides how much
// memory a stage needs, and the program knows for each range of layers and devices whether it fits.
// It minimizes the load of the busiest stage; links count only in the step.
//
// Returns: no value if it finds none. With few layers and devices, no such layout exists then;
//          with more, one with unequal numbers of replicas may exist
// Cost:    with equal numbers of replicas O(N L^2) for L layers and each N; not all N are tried
std::optional<LayoutSearch> search_recomputing(const LayoutProblem& problem, Watch* watch);

}  // namespace tenuto
