// The rule of a StageTable whose values are the load of the busiest stage or link.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "adapt/layout/stage_table.h"

namespace tenuto {

// A stage's load shrinks as its first layer moves up, and grows with its last layer. So the window
// of first layers divides: from a certain layer on, the value before the stage decides, and below
// it the load of the stage. Both parts of the window only move up with the last layer.
class BottleneckRule {
 public:
  // `most`: states with a greater value may be left out; weights.work must be 1 then.
  BottleneckRule(const StageWalk& walk, const LoadWeights& weights, double most = kUnreachable);

  // Names the stage whose load is added next.
  void begin(const StageTerms& terms, int32_t in_flight);
  // A state with these units and fewer layers leads nowhere.
  int32_t least_layers(int32_t units) const { return least_layers_[static_cast<size_t>(units)]; }
  // With the transfer of a micro-batch over the cut behind `layers` layers.
  double joined(double value, int32_t layers, double transfer) const {
    return std::max(value,
                    walk_->cut()[static_cast<size_t>(layers)] * (weights_.transfer * transfer));
  }
  // The same for a row of values.
  void join(Layers row, const double* values, double transfer, double* best) const;
  // With the load of the stage.
  double extended(double value, Layers stage) const { return std::max(value, load(stage)); }
  // The same for all first layers in `joined` and all last layers.
  int32_t extend(Layers joined, int32_t first, const double* best, double* values);

 private:
  // kUnreachable when memory does not suffice.
  double load(Layers stage) const {
    if (in_flight_ > 0 && walk_->memory(terms_, stage, in_flight_) > terms_.memory) {
      return kUnreachable;
    }
    return loads_[static_cast<size_t>(stage.end)] - loads_[static_cast<size_t>(stage.first)] +
           fixed_;
  }

  const StageWalk* walk_;
  LoadWeights weights_;
  double most_ = 0;
  std::vector<int32_t> least_layers_;  // by units
  StageTerms terms_;
  int32_t in_flight_ = 0;
  double fixed_ = 0;           // the part of the stage's load that does not depend on its layers
  std::vector<double> loads_;  // [l]: the part of the first l layers, on the stage's devices
  SlidingMinimum window_;
};

}  // namespace tenuto
