// How long a step lasts in a cluster with troubles, by which remedies a run has.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "adapt/line.h"
#include "base/unit.h"
#include "outlook/condition.h"

namespace tenuto::outlook {

// What a run does about troubles. Without any it leaves slow workers and slow links alone, and
// after a death continues from a checkpoint with the whole pipelines that are left.
struct Remedies {
  bool reroute = false;    // peers of a dead worker run its micro-batches
  bool rebalance = false;  // slow workers get fewer micro-batches, and messages avoid slow links
  bool reorder = false;    // more forwards ahead of the first backward absorb a slow link's delay
  bool layers = false;     // layers move to stages with more speed
  bool grow = false;       // a repaired worker comes back while the run goes on
  bool operator==(const Remedies&) const = default;
};

// A step without troubles: 1F1B with split backwards, without reductions and update.
struct StepSetup {
  int32_t micros = 8;                                       // of a pipeline
  Duration forward = std::chrono::milliseconds(10);         // of a micro-batch at a stage
  Duration backward_input = std::chrono::milliseconds(10);  // the same
  Duration backward_weight = std::chrono::milliseconds(10);
  Duration link{};     // latency from a stage to the next one, and back
  Duration cross{};    // the same between two pipelines; no less than `link` counts
  int32_t spare = 0;   // micro-batches that a worker can hold beyond those of 1F1B
  int32_t layers = 1;  // of a stage
};

// How many layers each stage has; empty = equally many.
using LayerCounts = std::vector<int32_t>;

// The time of a step, and a lower bound: no order of ops is faster with the same layers and loads.
struct StepCost {
  Duration time{}, bound{};
  bool operator==(const StepCost&) const = default;
};

// Prices of steps.
//
// The step of a pipeline is simulated (adapt/line.h). A pipeline that shares no micro-batches with
// others is priced as it is. When pipelines share, stage s has load k_s: the micro-batches that its
// busiest worker runs, counted in those of a healthy worker. The step is that of one pipeline with
// min(k) micro-batches whose stage s is k_s / min(k) times slower. Each worker then computes as
// long as it would, so the price is never below the bound; it is above it by what it takes to fill
// and empty the pipeline, and by delays that the order does not absorb.
class StepPrices {
 public:
  // memo = false: every price is computed anew.
  //
  // Requires: sums of all times of a step, with every factor, below kLongestTime
  StepPrices(const ClusterShape& shape, const StepSetup& setup, const Remedies& remedies,
             bool memo = true);

  // The cost of a step; nothing when the run cannot go on: a stage has no live worker, or without
  // re-routing no pipeline is whole.
  std::optional<StepCost> of(const Condition& condition, const LayerCounts& layers);
  // The division of the layers that makes the slowest stage as fast as possible; empty when equal
  // shares are as good, or when the run cannot go on.
  //
  // Cost: O(layers log stages)
  LayerCounts best_layers(const Condition& condition) const;
  // What the run does about troubles.
  const Remedies& remedies() const { return remedies_; }
  // How many steps of a pipeline have been simulated.
  int64_t played() const { return played_; }

 private:
  using Loads = std::vector<int64_t>;
  std::optional<Loads> loads_of(const Condition& condition) const;
  std::optional<Loads> routed_loads(const Condition& condition) const;
  std::optional<Loads> whole_loads(const Condition& condition) const;
  int64_t load_of(int64_t live, const std::vector<double>& slow) const;
  double slowdown(const Pattern& pattern, int32_t stage) const;
  Duration delay(const Pattern& pattern, int32_t stage) const;
  Line line_of(const Loads& loads, const LayerCounts& layers, const Pattern& pattern) const;
  Duration bound_of(const Loads& loads, const LayerCounts& layers) const;
  Duration time_of(const Line& line);
  Duration play(const Line& line);
  std::optional<StepCost> compute(const Condition& condition, const LayerCounts& layers);

  ClusterShape shape_;
  StepSetup setup_;
  Remedies remedies_;
  bool memo_;
  int64_t played_ = 0;
  std::map<std::pair<Condition, LayerCounts>, std::optional<StepCost>> costs_;
  std::map<Line, Duration> times_;
};

}  // namespace tenuto::outlook
