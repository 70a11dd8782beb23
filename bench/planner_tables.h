// Shared by the tables of planner_bench: the planners that the search for a layout is compared
// with, and sums of their results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adapt/layout/baseline.h"
#include "adapt/layout/problem.h"
#include "adapt/layout/search.h"

namespace tenuto {

// As `tenuto plan --planner` has it.
std::string name_of(Planner planner);

// A planner that the search is compared with.
struct Rival {
  std::string name;
  std::function<PricedLayout(const LayoutProblem&)> plan;
};
// All baselines, and the last one once more with the devices in the order of their numbers.
const std::vector<Rival>& rivals();

// search_layout() of a problem with unlimited memory.
LayoutSearch search(const LayoutProblem& problem, const LayoutEffort& effort = {});

// Some ratios of the same kind.
class Ratios {
 public:
  void add(double ratio) { ratios_.push_back(ratio); }
  // Of at least one ratio.
  double mean() const;
  double geometric_mean() const;
  double least() const;
  double most() const;
  // How many are 1, except for rounding.
  int64_t ones() const;
  int64_t count() const { return static_cast<int64_t>(ratios_.size()); }

 private:
  std::vector<double> ratios_;
};

// Steps are equal when they differ by no more than this share of them.
inline constexpr double kRounding = 1e-9;

// The replicas of each stage, e.g. "6-2".
std::string replicas_of(const Layout& layout);

// What the command line asks for.
struct PlannerSettings {
  int32_t count = 0;  // random problems; 0 = the table's default
  std::string csv;    // file for all rows of the sweep; empty = none
};

// Prints a table: all planners on tiny random problems, against the best of all layouts.
void print_tiny(const PlannerSettings& settings, bool half_duplex);
// All planners on measured chains of layers, beside a reference planner's results.
void print_chains();
// The search against all planners over micro-batches, devices and bandwidths.
//
// Returns: false when the CSV file could not be written
bool print_sweep(const PlannerSettings& settings);
// The time and the memory of a search by the size of its problem.
void print_times();

}  // namespace tenuto
