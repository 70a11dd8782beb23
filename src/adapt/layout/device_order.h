// Orders of devices in which well connected devices stand side by side. A search for a layout then
// gives each stage consecutive devices.
#pragma once

#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// Each device once.
using DeviceOrder = std::vector<int32_t>;

// The devices 0, 1, 2, ...
DeviceOrder natural_order(const LayoutProblem& problem);

// Splits the devices by a global minimum cut of the rates, again and again, and puts the two orders
// one behind the other; the side with the lowest device first. An unlimited rate counts as the sum
// of all limited ones.
//
// Source: Luo et al., INFOCOM 2022 (recursive min-cut order); Stoer and Wagner, "A simple min-cut
//         algorithm", J. ACM 1997
// Cost:   O(V^4) at worst for V devices
DeviceOrder min_cut_order(const LayoutProblem& problem);

// Joins the two groups with the fastest rate between two of their devices, again and again (single
// linkage), and puts their orders one behind the other; of the four ways to turn them round it
// takes the one with the fastest rate at the seam. So the devices that are connected by rates of at
// least r stand side by side, for every r.
//
// Cost: O(V^2)
DeviceOrder linkage_order(const LayoutProblem& problem);

// An order cut into units: single devices, or whole nodes for very large clusters. A layout of such
// an order gives each stage whole, consecutive units. Knows the slowest rate, the lowest speed and
// the smallest memory of every run of units.
class UnitOrder {
 public:
  // `unit`: devices of a unit; divides the number of devices of the order. `counts`: the numbers of
  // units that a stage may have, ascending, each at most the number of units.
  // Cost: O(units^2 x counts.size()^2)
  UnitOrder(const LayoutProblem& problem, DeviceOrder order, int32_t unit,
            std::vector<int32_t> counts);

  // How many units the order has.
  int32_t unit_count() const { return unit_count_; }
  // How many devices a unit has.
  int32_t unit() const { return unit_; }
  // The numbers of units that a stage may have.
  const std::vector<int32_t>& counts() const { return counts_; }
  // Of a stage with counts()[c] units, of which the first is `first`.
  double slowest_inside(int32_t first, size_t c) const;  // infinite for a single device
  double speed(int32_t first, size_t c) const;
  double memory(int32_t first, size_t c) const;
  // Between a stage with counts()[a] units that ends before unit `seam`, and one with counts()[b]
  // units that begins there.
  double slowest_between(int32_t seam, size_t a, size_t b) const;
  // The workers of units first, first + 1, ..., first + count - 1.
  std::vector<WorkerId> workers(int32_t first, int32_t count) const;

 private:
  const LayoutProblem* problem_;
  DeviceOrder order_;
  int32_t unit_ = 1, unit_count_ = 0;
  std::vector<int32_t> counts_;
  std::vector<double> inside_, speed_, memory_;  // [c x (unit_count_ + 1) + first]
  std::vector<double> between_;                  // [(seam x counts + a) x counts + b]
};

// All numbers from 1 to `most`.
std::vector<int32_t> all_counts(int32_t most);
// The powers of two up to `most`, and `most`.
std::vector<int32_t> doubling_counts(int32_t most);

}  // namespace tenuto
