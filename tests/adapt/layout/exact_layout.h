// The best of all layouts of a tiny problem, under the best of all schedules: what a planner is
// compared with. Shares no code with the planner: it computes loads from the model and the cluster.
#pragma once

#include <cstdint>

#include "adapt/layout/problem.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A layout whose step is the shortest.
struct ExactLayout {
  double makespan = 0;  // of its step, in nanoseconds
  Layout layout;
  int64_t layouts = 0;    // all there are
  int64_t scheduled = 0;  // those whose best schedule was needed
};

// The shortest step of any layout: all partitions of the layers, all sets of devices for each
// stage, including those that leave devices idle, and all schedules. Layouts come in the order of a
// simple lower bound, and those whose bound is not below the best step so far are left out.
//
// Requires: at most 4 live workers and 4 micro-batches, unlimited memory, links without latency
ExactLayout exact_layout(const Model& model, const Cluster& cluster,
                         const LayoutSettings& settings);

// The same, and leaves no layout out. For tests of exact_layout().
ExactLayout exhaustive_layout(const Model& model, const Cluster& cluster,
                              const LayoutSettings& settings);

}  // namespace tenuto
