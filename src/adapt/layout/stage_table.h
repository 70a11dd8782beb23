// The table that the dynamic programs of program.h fill, stage by stage.
//
// A program walks along the layers and the units, from the input side or from the output side. A
// state says that the first `end` layers of the walk are in stages on the first `units` units, and
// that the last of these stages has the c-th permitted number of units. The numbers of layers of
// all states with the same units and c form a row. A row is computed in two steps. First all rows
// that may come before it are joined: for each number of layers the least value, the transfer to
// the new stage included. Then the new stage is added to each joined value within a window of
// layers. So the cost is that of the joins: O(V R^2 L) for L layers, V units and R permitted
// numbers, where the plain recurrence costs O(V R^2 L^2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "adapt/layout/device_order.h"
#include "adapt/layout/problem.h"
#include "base/check.h"

namespace tenuto {

// Limits are widened by this share, so that a load that was computed in another way, and rounded
// differently, stays within a limit that is equal to it.
inline constexpr double kRounding = 1e-11;
inline constexpr double kUnreachable = std::numeric_limits<double>::infinity();

// The factors of the parts of a load. For the load of a whole step: the number of micro-batches, 1,
// and twice the number of micro-batches.
struct LoadWeights {
  double work = 1;       // of a micro-batch on a stage
  double reduction = 1;  // of a stage, and its update
  double transfer = 2;   // of a micro-batch, in one direction
};

// What a stage on certain devices costs.
struct StageTerms {
  double replicas = 1;
  double work = 0;               // nanoseconds for each nanosecond of work
  double reduction = 0;          // nanoseconds of the all-reduce for each byte of parameters
  double update = 0;             // nanoseconds for each nanosecond of the update
  double passes = 0;             // nanoseconds of a forward and a backward without layers
  double memory = kUnreachable;  // of the device with the least
};

// A stage in a walk: the layers and units that the walk has passed before it and after it.
struct WalkedStage {
  Layers layers;
  int32_t unit_first = 0, unit_end = 0;
};

// The layers and units in the order of a walk.
class StageWalk {
 public:
  // Both must outlive the walk.
  StageWalk(const LayoutProblem& problem, const UnitOrder& units, bool from_end);

  // Of the problem.
  int32_t layer_count() const { return problem_->layer_count(); }
  int32_t unit_count() const { return units_->unit_count(); }
  // Numbers of units that a stage may have, ascending.
  const std::vector<int32_t>& counts() const { return units_->counts(); }
  // Of the problem.
  const LayoutSettings& settings() const { return problem_->settings(); }
  // The time of a stage's update without the updates of its layers, on a device of speed 1.
  double step() const { return problem_->update({0, 0}); }
  // The time of a forward and a backward without layers, on a device of speed 1.
  double passes() const { return 2 * problem_->pass(); }
  // Whether the walk goes from the last layer and the last unit to the first.
  bool from_end() const { return from_end_; }

  // [l]: of the first l layers of the walk.
  const std::vector<double>& work() const { return work_; }  // forward and backward
  const std::vector<double>& parameters() const { return parameters_; }
  // [l]: the time of the updates of the first l layers; empty when no layer's update takes time.
  const std::vector<double>& updates() const { return updates_; }
  // [l]: bytes over the cut behind the first l layers, in one direction.
  const std::vector<double>& cut() const { return cut_; }
  // The largest of them.
  double most_cut() const { return most_cut_; }
  // The sum of the speeds of all devices.
  double speeds() const { return speeds_.back(); }

  // [u]: within a limit of a micro-batch's time on a stage, a state with the first u units and
  // fewer layers leads nowhere: the devices that are left cannot do the work that is left.
  std::vector<int32_t> least_layers(double limit) const;

  // A state with the first `units` units and fewer layers leads nowhere: the devices that are left
  // do not have the memory for the layers that are left, with so many micro-batches in flight.
  int32_t least_layers_by_memory(int32_t units, int32_t in_flight) const;

  // Of a stage with counts()[c] units that ends behind the first `end` units.
  StageTerms terms(int32_t end, size_t c) const;
  // Nanoseconds for each byte that crosses between a stage with counts()[before] units that ends
  // behind the first `end` units, and the next stage of the walk, with counts()[after] units.
  double transfer(int32_t end, size_t before, size_t after) const;
  // The part of a stage's load that does not depend on its layers: passes() for each micro-batch,
  // and step().
  double fixed_load(const StageTerms& terms, const LoadWeights& weights) const {
    return weights.work * terms.passes + weights.reduction * (terms.update * step());
  }
  // Sets loads[l] to the part of the load that the first l layers of the walk add.
  void loads_of_layers(const StageTerms& terms, const LoadWeights& weights,
                       std::vector<double>& loads) const;
  // The memory that each replica needs (stage_memory).
  double memory(const StageTerms& terms, Layers layers, int32_t in_flight) const;

  // The layout that consists of these stages of the walk, the last one of the walk first.
  Layout layout(const std::vector<WalkedStage>& stages) const;

 private:
  // What a stage with these layers of the walk keeps.
  HeldBytes held(Layers layers) const {
    const auto first = static_cast<size_t>(layers.first), end = static_cast<size_t>(layers.end);
    return {state_[end] - state_[first], 0, stash_[end] - stash_[first]};
  }
  double replicas(size_t c) const { return static_cast<double>(counts()[c] * units_->unit()); }

  const LayoutProblem* problem_;
  const UnitOrder* units_;
  bool from_end_ = false;
  std::vector<double> work_, parameters_, updates_, state_, stash_, cut_;  // [layers]
  std::vector<double> speeds_;       // [u]: of all devices of the first u units
  std::vector<double> memory_left_;  // [u]: of all devices behind them
  double most_cut_ = 0;
};

// The least of the values in a window whose ends only move up.
class SlidingMinimum {
 public:
  explicit SlidingMinimum(int32_t most) : at_(index(most)), values_(index(most)) {}

  // Begins again.
  void clear() { first_ = end_ = 0; }
  // Adds the value at place `at`, which grows from call to call.
  void push(int32_t at, double value) {
    while (end_ > first_ && values_[end_ - 1] >= value) --end_;
    at_[end_] = at;
    values_[end_++] = value;
  }
  // Takes out all values at lower places.
  void drop_before(int32_t at) {
    while (first_ < end_ && at_[first_] < at) ++first_;
  }
  // kUnreachable when there is none.
  double least() const { return first_ < end_ ? values_[first_] : kUnreachable; }

 private:
  static size_t index(int32_t number) { return static_cast<size_t>(number); }

  std::vector<int32_t> at_;
  std::vector<double> values_;
  size_t first_ = 0, end_ = 0;
};

// Which states a table has.
struct TableShape {
  // Level k holds the states with k stages. In a table that saturates, the last level holds those
  // with at least so many stages; so one level is enough where the number does not matter.
  int32_t levels = 1;
  bool saturates = true;
  bool idle = false;     // units at the end of the order may stay idle
  bool limited = false;  // memory is; then the walk is from the end, and a stage of level k has
                         // min(micros, k) micro-batches in flight
};

// The states with all layers and the least value.
struct TableEnd {
  int32_t level = 0, units = 0;
  size_t c = 0;
  double value = kUnreachable;
};

// A table whose values are made by a rule, with these functions:
//
//   void begin(const StageTerms& terms, int32_t in_flight)
//       names the stage that extend() and extended() add; in_flight = 0: memory is not limited
//   int32_t least_layers(int32_t units) const
//       a state with these units and fewer layers leads nowhere
//   double joined(double value, int32_t layers, double transfer) const
//       the value of a state with the transfer to the next stage; `transfer` in nanoseconds a byte
//   void join(Layers row, const double* values, double transfer, double* best) const
//       best[l] = min(best[l], joined(values[l - row.first], l, transfer)) for each l of the row
//   double extended(double value, Layers stage) const
//       the joined value of stage.first with the stage; grows with the stage and with the value
//   int32_t extend(Layers joined, int32_t first, const double* best, double* values)
//       values[l] = min of extended(best[f], {f, l}) over f < l for each l from `first` on; returns
//       the first l from which on all are unreachable
template <class Rule>
class StageTable {
 public:
  // Fills the table. `walk` must outlive it.
  StageTable(const StageWalk& walk, Rule rule, const TableShape& shape)
      : walk_(walk), rule_(std::move(rule)), shape_(shape) {
    const size_t layers = index(walk.layer_count()) + 1;
    best_.resize(layers);
    extended_.resize(layers);
    rows_.resize(place(shape.levels + 1, 0, 0));
    if (shape.saturates && shape.levels > 1) lowest_.resize(place(2, 0, 0));
    for (int32_t level = 1; level <= shape.levels; ++level) {
      for (int32_t units = 1; units <= walk.unit_count(); ++units) {
        const int32_t least = least_layers(level, units);
        for (size_t c = 0; c < walk.counts().size() && walk.counts()[c] <= units; ++c) {
          fill(level, units, c, least);
        }
      }
    }
  }

  // Of the states of a level; the value is kUnreachable when there is none.
  TableEnd least(int32_t level) const {
    TableEnd least{level, 0, 0, kUnreachable};
    const bool some = shape_.idle && !walk_.from_end();
    for (int32_t units = some ? 1 : walk_.unit_count(); units <= walk_.unit_count(); ++units) {
      for (size_t c = 0; c < walk_.counts().size(); ++c) {
        const double value = value_of(row(level, units, c), walk_.layer_count());
        if (value < least.value) least = {level, units, c, value};
      }
    }
    return least;
  }

  // The layout of a state with all layers, found by computing each step on the way to it again.
  // Of equal values it takes the one with the shortest last stage, then with the fewest units of
  // the stage before.
  Layout layout(TableEnd end) {
    std::vector<WalkedStage> stages;
    int32_t layers = walk_.layer_count();
    while (layers > 0) {
      const Step step = step_to(end, layers);
      CHECK(step.value < kUnreachable, "a state of the table is reached from another one");
      const int32_t start = end.units - walk_.counts()[end.c];
      stages.push_back({{step.first, layers}, start, end.units});
      layers = step.first;
      end = {step.level, start, step.c, kUnreachable};
    }
    return walk_.layout(stages);
  }

 private:
  // values[i] is that of first + i layers; all others are kUnreachable.
  struct Row {
    int32_t end() const { return first + static_cast<int32_t>(values.size()); }

    int32_t first = 0;
    std::vector<double> values;
  };
  // The last stage of a state begins behind `first` layers; before it stands the state (level, c).
  struct Step {
    double value = kUnreachable;
    int32_t first = 0, level = 0;
    size_t c = 0;
  };

  static size_t index(int32_t number) { return static_cast<size_t>(number); }
  size_t place(int32_t level, int32_t units, size_t c) const {
    return (index(level - 1) * (index(walk_.unit_count()) + 1) + index(units)) *
               walk_.counts().size() +
           c;
  }
  const Row& row(int32_t level, int32_t units, size_t c) const {
    return rows_[place(level, units, c)];
  }
  double value_of(const Row& row, int32_t layers) const {
    return layers >= row.first && layers < row.end() ? row.values[index(layers - row.first)]
                                                     : kUnreachable;
  }

  // A stage of `level` follows on one of level - 1, or of this level.
  int32_t last_before(int32_t level) const {
    return shape_.saturates && level == shape_.levels ? level : level - 1;
  }
  // Whether the walk may begin with a stage of `level` behind the first `units` units.
  bool may_begin(int32_t level, int32_t units) const {
    return level == 1 && (units == 0 || (shape_.idle && walk_.from_end()));
  }
  int32_t in_flight(int32_t level) const { return least_in_flight(walk_.settings(), level - 1); }
  void begin(int32_t level, int32_t units, size_t c) {
    rule_.begin(walk_.terms(units, c), shape_.limited ? in_flight(level) : 0);
  }
  int32_t least_layers(int32_t level, int32_t units) const {
    const int32_t least = rule_.least_layers(units);
    if (!shape_.limited) return least;
    return std::max(least, walk_.least_layers_by_memory(units, in_flight(level)));
  }

  void fill(int32_t level, int32_t units, size_t c, int32_t least) {
    const Layers joined = join(level, units - walk_.counts()[c], c);
    const int32_t layers = walk_.layer_count();
    Layers row = {std::max(joined.first + 1, least), 0};
    if (joined.first >= joined.end || row.first > layers) return;
    begin(level, units, c);
    row.end = rule_.extend(joined, row.first, best_.data(), extended_.data());
    if (!lowest_.empty()) leave_out_dominated(row, lowest_[place(1, units, c)]);
    while (row.first < row.end && extended_[index(row.first)] == kUnreachable) ++row.first;
    while (row.first < row.end && extended_[index(row.end - 1)] == kUnreachable) --row.end;
    rows_[place(level, units, c)] = {row.first,
                                     {extended_.begin() + row.first, extended_.begin() + row.end}};
  }

  // Leaves out the values that are not below those of all lower levels. In such a state more
  // micro-batches would be in flight on all other stages of the walk, and nothing would be better.
  void leave_out_dominated(Layers row, std::vector<double>& lowest) {
    lowest.resize(extended_.size(), kUnreachable);
    for (int32_t l = row.first; l < row.end; ++l) {
      double& value = extended_[index(l)];
      if (value < lowest[index(l)]) {
        lowest[index(l)] = value;
      } else {
        value = kUnreachable;
      }
    }
  }

  // Sets best_ to the least values of the states that end behind `start` units, with the transfer
  // to a stage of counts()[c] units; returns their range.
  Layers join(int32_t level, int32_t start, size_t c) {
    const bool begins = may_begin(level, start);
    Layers all = {begins ? 0 : walk_.layer_count(), begins ? 1 : 0};
    const auto each_row = [&](const auto& use) {
      for (int32_t from = std::max(1, level - 1); from <= last_before(level); ++from) {
        for (size_t b = 0; b < walk_.counts().size() && walk_.counts()[b] <= start; ++b) {
          if (!row(from, start, b).values.empty()) use(row(from, start, b), b);
        }
      }
    };
    each_row([&](const Row& row, size_t) {
      all = {std::min(all.first, row.first), std::max(all.end, row.end())};
    });
    all.end = std::min(all.end, walk_.layer_count());
    if (all.first >= all.end) return all;
    std::fill(best_.begin() + all.first, best_.begin() + all.end, kUnreachable);
    if (begins) best_[0] = 0;
    each_row([&](const Row& row, size_t b) {
      const Layers layers = {row.first, std::min(row.end(), all.end)};
      if (layers.first >= layers.end) return;
      rule_.join(layers, row.values.data(), walk_.transfer(start, b, c), best_.data());
    });
    return all;
  }

  // The best last stage of a state.
  Step step_to(const TableEnd& end, int32_t layers) {
    Step best;
    const int32_t start = end.units - walk_.counts()[end.c];
    begin(end.level, end.units, end.c);
    for (int32_t first = layers - 1; first >= 0; --first) {
      const Layers stage = {first, layers};
      if (rule_.extended(0, stage) >= best.value) break;  // and so are all longer stages
      if (first == 0 && may_begin(end.level, start)) {
        take({rule_.extended(0, stage), 0, 0, 0}, best);
      }
      for (int32_t from = std::max(1, end.level - 1); from <= last_before(end.level); ++from) {
        for (size_t b = 0; b < walk_.counts().size() && walk_.counts()[b] <= start; ++b) {
          const double value = value_of(row(from, start, b), first);
          if (value == kUnreachable) continue;
          const double joined = rule_.joined(value, first, walk_.transfer(start, b, end.c));
          take({rule_.extended(joined, stage), first, from, b}, best);
        }
      }
    }
    return best;
  }
  static void take(const Step& step, Step& best) {
    if (step.value < best.value) best = step;
  }

  const StageWalk& walk_;
  Rule rule_;
  TableShape shape_;
  std::vector<Row> rows_;                    // [place(level, units, c)]
  std::vector<double> best_, extended_;      // [layers]
  std::vector<std::vector<double>> lowest_;  // [place(1, units, c)][layers]: of the levels so far
};

}  // namespace tenuto
