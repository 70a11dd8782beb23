// Dynamic programs that cut a chain of layers into stages and give each stage consecutive units of
// a given order of devices. Rows are split over the replicas of a stage (row_split_loads).
#pragma once

#include <optional>
#include <vector>

#include "adapt/layout/device_order.h"
#include "adapt/layout/problem.h"

namespace tenuto {

// A layout and its bottleneck.
struct BottleneckLayout {
  Layout layout;
  double bottleneck = 0;
};

// For each number of stages from 1 to N = min(layers, units): the layout with the least
// bottleneck() that uses all units. Entry i has i + 1 stages; an entry is empty when there is no
// such layout, or none that fits into memory (memory_shortage). `idle`: units at the end of the
// order may stay idle. Of equally good layouts it takes the one with the shortest last stage, then
// with the fewest replicas in the stage before, and so on; where memory is limited, that with the
// shortest first stage.
//
// Source: Luo et al., INFOCOM 2022 (partition, replication and mapping); with fewer steps, because
//         the best stage before is found for all cuts at once
// Cost:   O(N V R^2 L) for L layers, V units and R counts, instead of O(N V R^2 L^2); 0.3 s for 200
//         layers on 64 units with all counts. Memory: 8 N V R L bytes at most, there 70 MB
std::vector<std::optional<BottleneckLayout>> least_bottlenecks(const LayoutProblem& problem,
                                                               const UnitOrder& units,
                                                               bool idle = false);

// What a layout of ThresholdProgram may have.
struct Threshold {
  double limit = 0;        // of a micro-batch's time on a stage or a link, in nanoseconds
  bool reductions = true;  // a stage's limit includes its reduction, divided by the micro-batches
  bool both_ways = true;   // a link's limit is for the transfers of both directions together; no:
                           // for each direction alone
};

// Finds, among the layouts whose stages and links stay within a limit, the one that a single
// micro-batch passes through in the least time. Units at the end of the order may stay idle.
class ThresholdProgram {
 public:
  ThresholdProgram(const LayoutProblem& problem, const UnitOrder& units);
  // Nothing when no layout stays within the limit (and fits into memory). A layout whose load is
  // the limit is within it, even if the load was rounded differently.
  // Cost: O(V R^2 L); where memory decides, times the number of stages. 10 ms for 200 layers on 64
  //       units with all counts, 25 ms on 1,024 units with doubling counts
  std::optional<Layout> least_latency(const Threshold& threshold) const;
  // A layout with the least limit (with `reductions` and `both_ways`); the result's `bottleneck` is
  // this limit, which is of one micro-batch. Nothing when no layout fits into memory.
  // Cost: about that of least_latency()
  std::optional<BottleneckLayout> least_limit(const Threshold& threshold) const;

 private:
  const LayoutProblem* problem_;
  const UnitOrder* units_;
};

}  // namespace tenuto
