#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "adapt/layout/device_order.h"
#include "base/check.h"

namespace tenuto {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The slowest rates between a run of units and a single unit behind it, for runs of one length.
//
// Of a matrix of units by units only the part above the diagonal is kept: at most 64 MiB for 4,096
// units.
class RunRates {
 public:
  // Runs of one unit.
  RunRates(const LayoutProblem& problem, const DeviceOrder& order, size_t unit)
      : units_(order.size() / unit), slowest_(units_ * (units_ - 1) / 2, kUnlimited) {
    std::vector<double> rates;
    for (size_t i = 0; i < order.size(); ++i) {
      problem.rates_from(order[i], rates);
      const size_t first = i / unit;
      for (size_t other = first + 1; other < units_; ++other) {
        double slowest = slowest_[index(first, other)];
        for (size_t j = other * unit; j < (other + 1) * unit; ++j) {
          slowest = std::min(slowest, rates[at(order[j])]);
        }
        slowest_[index(first, other)] = slowest;
      }
    }
  }

  // Between units first, ..., first + length - 1 and unit `other`, which is behind them.
  double slowest(size_t first, size_t other) const { return slowest_[index(first, other)]; }

  // Changes the length of the runs. A longer run is the union of two shorter ones, which may
  // overlap; so the cost is units^2 for each doubling.
  //
  // Requires: not shorter than now
  void lengthen(size_t length) {
    while (length_ < length) {
      const size_t longer = std::min(2 * length_, length);
      for (size_t first = 0; first + longer < units_; ++first) {
        double* const row = &slowest_[index(first, first + longer)];
        const double* const later = &slowest_[index(first + longer - length_, first + longer)];
        for (size_t i = 0; i < units_ - first - longer; ++i) row[i] = std::min(row[i], later[i]);
      }
      length_ = longer;
    }
  }

 private:
  size_t index(size_t first, size_t other) const {
    return first * (2 * units_ - first - 1) / 2 + other - first - 1;
  }

  size_t units_;
  size_t length_ = 1;
  std::vector<double> slowest_;  // the rows of all first units, one behind the other
};

// The slowest rate between two devices within each unit.
std::vector<double> slowest_within_units(const LayoutProblem& problem, const DeviceOrder& order,
                                         size_t unit) {
  std::vector<double> all(order.size() / unit, kUnlimited);
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < (i / unit + 1) * unit; ++j) {
      all[i / unit] = std::min(all[i / unit], problem.rate(order[i], order[j]));
    }
  }
  return all;
}

// The slowest rate inside each run of units. `inside`: of each unit alone; `rates`: for runs of one
// unit. [c x (units + 1) + first]
std::vector<double> slowest_inside_runs(std::vector<double> inside, const RunRates& rates,
                                        const std::vector<int32_t>& counts) {
  const size_t units = inside.size();
  std::vector<double> table(counts.size() * (units + 1), 0);
  size_t length = 1;
  for (size_t c = 0; c < counts.size(); ++c) {
    for (; length < at(counts[c]); ++length) {
      // A run has the pairs of the two runs that are shorter by one, and the pair of its two ends.
      for (size_t first = 0; first + length < units; ++first) {
        inside[first] =
            std::min({inside[first], inside[first + 1], rates.slowest(first, first + length)});
      }
    }
    std::copy_n(inside.begin(), units + 1 - length,
                table.begin() + static_cast<std::ptrdiff_t>(c * (units + 1)));
  }
  return table;
}

// The least value in each run of units. `values`: of each unit alone. [c x (units + 1) + first]
std::vector<double> least_of_runs(std::vector<double> values, const std::vector<int32_t>& counts) {
  const size_t units = values.size();
  std::vector<double> table(counts.size() * (units + 1), 0);
  size_t length = 1;
  for (size_t c = 0; c < counts.size(); ++c) {
    while (length < at(counts[c])) {
      const size_t longer = std::min(2 * length, at(counts[c]));
      for (size_t first = 0; first + longer <= units; ++first) {
        values[first] = std::min(values[first], values[first + longer - length]);
      }
      length = longer;
    }
    std::copy_n(values.begin(), units + 1 - length,
                table.begin() + static_cast<std::ptrdiff_t>(c * (units + 1)));
  }
  return table;
}

// The slowest rate between each two runs that meet at a seam. [(seam x counts + a) x counts + b]
std::vector<double> slowest_between_runs(RunRates rates, size_t units,
                                         const std::vector<int32_t>& counts) {
  std::vector<double> table((units + 1) * counts.size() * counts.size(), 0);
  for (size_t a = 0; a < counts.size(); ++a) {
    const size_t before = at(counts[a]);
    rates.lengthen(before);
    for (size_t seam = before; seam < units; ++seam) {
      double* const row = &table[(seam * counts.size() + a) * counts.size()];
      double slowest = kUnlimited;
      size_t end = seam;
      for (size_t b = 0; b < counts.size() && seam + at(counts[b]) <= units; ++b) {
        for (; end < seam + at(counts[b]); ++end) {
          slowest = std::min(slowest, rates.slowest(seam - before, end));
        }
        row[b] = slowest;
      }
    }
  }
  return table;
}

}  // namespace

UnitOrder::UnitOrder(const LayoutProblem& problem, DeviceOrder order, int32_t unit,
                     std::vector<int32_t> counts)
    : problem_(&problem), order_(std::move(order)), unit_(unit), counts_(std::move(counts)) {
  CHECK(unit >= 1 && !order_.empty() && order_.size() % at(unit) == 0,
        "an order must have whole units");
  unit_count_ = static_cast<int32_t>(order_.size() / at(unit));
  CHECK(!counts_.empty() && counts_.front() >= 1 && counts_.back() <= unit_count_ &&
            std::adjacent_find(counts_.begin(), counts_.end(), std::greater_equal<>()) ==
                counts_.end(),
        "the numbers of units must ascend from at least 1 to at most all");
  std::vector<double> speeds(at(unit_count_), kUnlimited), memories(at(unit_count_), kUnlimited);
  for (size_t i = 0; i < order_.size(); ++i) {
    double& speed = speeds[i / at(unit)];
    double& memory = memories[i / at(unit)];
    speed = std::min(speed, problem.speed(order_[i]));
    memory = std::min(memory, problem.memory(order_[i]));
  }
  speed_ = least_of_runs(std::move(speeds), counts_);
  memory_ = least_of_runs(std::move(memories), counts_);
  RunRates rates(problem, order_, at(unit));
  inside_ = slowest_inside_runs(slowest_within_units(problem, order_, at(unit)), rates, counts_);
  between_ = slowest_between_runs(std::move(rates), at(unit_count_), counts_);
}

double UnitOrder::slowest_inside(int32_t first, size_t c) const {
  return inside_[c * at(unit_count_ + 1) + at(first)];
}

double UnitOrder::speed(int32_t first, size_t c) const {
  return speed_[c * at(unit_count_ + 1) + at(first)];
}

double UnitOrder::memory(int32_t first, size_t c) const {
  return memory_[c * at(unit_count_ + 1) + at(first)];
}

double UnitOrder::slowest_between(int32_t seam, size_t a, size_t b) const {
  return between_[(at(seam) * counts_.size() + a) * counts_.size() + b];
}

std::vector<WorkerId> UnitOrder::workers(int32_t first, int32_t count) const {
  std::vector<WorkerId> workers;
  for (size_t i = at(first) * at(unit_); i < at(first + count) * at(unit_); ++i) {
    workers.push_back(problem_->worker(order_[i]));
  }
  return workers;
}

std::vector<int32_t> all_counts(int32_t most) {
  std::vector<int32_t> counts;
  for (int32_t count = 1; count <= most; ++count) counts.push_back(count);
  return counts;
}

std::vector<int32_t> doubling_counts(int32_t most) {
  std::vector<int32_t> counts;
  for (int32_t count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

}  // namespace tenuto
