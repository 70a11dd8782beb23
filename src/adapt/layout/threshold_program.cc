#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "adapt/layout/bottleneck_rule.h"
#include "adapt/layout/program.h"
#include "adapt/layout/stage_table.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The least limit is looked for below so many times the time that work takes when all devices share
// it perfectly: a table without larger loads has far fewer states.
constexpr double kTimesShared[] = {1.5, 3, kUnreachable};

// What counts towards the limit.
LoadWeights weights_of(const LayoutProblem& problem, const Threshold& threshold) {
  return {1, threshold.reductions ? 1.0 / problem.settings().micros : 0,
          threshold.both_ways ? 2.0 : 1.0};
}

// best[i] = min(best[i], values[i] + bytes[i] x time) where the transfer stays within the limit.
void join_values(const double* __restrict values, const double* __restrict bytes, double time,
                 double limit, size_t count, double* __restrict best) {
  for (size_t i = 0; i < count; ++i) {
    const double transfer = bytes[i] * time;
    const double value = transfer <= limit ? values[i] + transfer : kUnreachable;
    best[i] = value < best[i] ? value : best[i];
  }
}

// The same where all transfers stay within the limit.
void join_all_values(const double* __restrict values, const double* __restrict bytes, double time,
                     size_t count, double* __restrict best) {
  for (size_t i = 0; i < count; ++i) {
    const double value = values[i] + bytes[i] * time;
    best[i] = value < best[i] ? value : best[i];
  }
}

// The values are the time that one micro-batch takes, forward and backward, through the stages and
// links, all within a limit.
class LatencyRule {
 public:
  LatencyRule(const StageWalk& walk, const LoadWeights& weights, double limit)
      : walk_(&walk),
        weights_(weights),
        limit_(limit * (1 + kRounding)),
        round_trip_limit_(limit_ * 2 / weights.transfer),
        least_layers_(walk.least_layers(limit_)),
        loads_(walk.work().size()),
        window_(walk.layer_count()) {}

  void begin(const StageTerms& terms, int32_t in_flight) {
    terms_ = terms;
    in_flight_ = in_flight;
    limit_left_ = limit_ - walk_->fixed_load(terms, weights_);
    walk_->loads_of_layers(terms, weights_, loads_);
  }
  int32_t least_layers(int32_t units) const { return least_layers_[at(units)]; }

  double joined(double value, int32_t layers, double transfer) const {
    const double round_trip = walk_->cut()[at(layers)] * (2 * transfer);
    return round_trip <= round_trip_limit_ ? value + round_trip : kUnreachable;
  }
  void join(Layers row, const double* values, double transfer, double* best) const {
    const double* const bytes = walk_->cut().data() + row.first;
    const size_t count = at(row.end - row.first);
    if (walk_->most_cut() * (2 * transfer) <= round_trip_limit_) {
      join_all_values(values, bytes, 2 * transfer, count, best + row.first);
    } else {
      join_values(values, bytes, 2 * transfer, round_trip_limit_, count, best + row.first);
    }
  }

  double extended(double value, Layers stage) const {
    return permits(stage) ? value + (time(stage.end) - time(stage.first)) + terms_.passes
                          : kUnreachable;
  }
  // The stage's time is a constant plus a difference of two sums, so the least value within the
  // window does not depend on the stage's last layer.
  int32_t extend(Layers joined, int32_t first, const double* best, double* values) {
    window_.clear();
    int32_t next = joined.first, low = joined.first;
    const int32_t layers = walk_->layer_count();
    for (int32_t end = first; end <= layers; ++end) {
      while (low < end && !permits({low, end})) ++low;
      if (low >= joined.end) return end;
      const int32_t most = std::min(end, joined.end);
      for (next = std::max(next, low); next < most; ++next) {
        window_.push(next, best[next] - time(next));
      }
      window_.drop_before(low);
      values[end] = window_.least() + time(end) + terms_.passes;
    }
    return layers + 1;
  }

 private:
  // Of the first layers of the walk on the stage's devices.
  double time(int32_t layers) const { return terms_.work * walk_->work()[at(layers)]; }
  // Also permits all stages that begin later or end sooner.
  bool permits(Layers stage) const {
    return loads_[at(stage.end)] - loads_[at(stage.first)] <= limit_left_ &&
           (in_flight_ == 0 || walk_->memory(terms_, stage, in_flight_) <= terms_.memory);
  }

  const StageWalk* walk_;
  LoadWeights weights_;
  double limit_ = 0;                   // of a stage
  double round_trip_limit_ = 0;        // of the transfers of both directions
  std::vector<int32_t> least_layers_;  // by units
  StageTerms terms_;
  int32_t in_flight_ = 0;
  double limit_left_ = 0;      // of the limit, for the stage's layers
  std::vector<double> loads_;  // [l]: of the first l layers, on the stage's devices
  SlidingMinimum window_;
};

// A layout and its value by some rule.
struct Found {
  Layout layout;
  double value = 0;
};

// The best layout that a table finds.
template <class Rule>
std::optional<Found> best_of(const StageWalk& walk, const Rule& rule, const TableShape& shape) {
  StageTable<Rule> table(walk, rule, shape);
  TableEnd best;
  for (int32_t level = 1; level <= shape.levels; ++level) {
    const TableEnd end = table.least(level);
    if (end.value < best.value) best = end;
  }
  if (best.value == kUnreachable) return std::nullopt;
  return Found{table.layout(best), best.value};
}

// The best layout of any number of stages that fits into memory.
//
// A table with few levels understates the micro-batches in flight of stages far from the end, so
// its best value is at least as good as the true one. If its layout fits into memory nevertheless,
// that layout is the best. So the number of levels grows only while the layout does not fit.
template <class Rule>
std::optional<Found> best_within_memory(const LayoutProblem& problem, const StageWalk& walk,
                                        const Rule& rule) {
  const bool limited = problem.memory_is_limited();
  const int32_t most = std::min({problem.settings().micros, walk.layer_count(), walk.unit_count()});
  for (int32_t levels = 1;; levels = std::min(2 * levels, most)) {
    std::optional<Found> found = best_of(walk, rule, {levels, true, true, limited});
    if (!limited || !found || levels == most || memory_shortage(problem, found->layout).stage < 0) {
      return found;
    }
  }
}

}  // namespace

ThresholdProgram::ThresholdProgram(const LayoutProblem& problem, const UnitOrder& units)
    : problem_(&problem), units_(&units) {}

std::optional<Layout> ThresholdProgram::least_latency(const Threshold& threshold) const {
  const StageWalk walk(*problem_, *units_, true);
  const LoadWeights weights = weights_of(*problem_, threshold);
  std::optional<Found> found =
      best_within_memory(*problem_, walk, LatencyRule(walk, weights, threshold.limit));
  if (!found) return std::nullopt;
  return std::move(found->layout);
}

std::optional<BottleneckLayout> ThresholdProgram::least_limit(const Threshold& threshold) const {
  const StageWalk walk(*problem_, *units_, true);
  const LoadWeights weights = weights_of(*problem_, threshold);
  const double shared =
      walk.work().back() / walk.speeds() + walk.passes() + weights.reduction * walk.step();
  for (const double times : kTimesShared) {
    const double most = shared > 0 ? times * shared : kUnreachable;
    std::optional<Found> found =
        best_within_memory(*problem_, walk, BottleneckRule(walk, weights, most));
    if (found) return BottleneckLayout{std::move(found->layout), found->value};
  }
  return std::nullopt;
}

}  // namespace tenuto
