#include "adapt/layout/rule_layouts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "adapt/layout/device_order.h"

namespace tenuto {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

size_t at(int32_t index) { return static_cast<size_t>(index); }

Stage stage_of(const LayoutProblem& problem, Layers layers, const DeviceOrder& order,
               Layers devices) {
  Stage stage{layers.first, layers.end, {}};
  for (int32_t i = devices.first; i < devices.end; ++i) {
    stage.holders.push_back(problem.worker(order[at(i)]));
  }
  return stage;
}

// Stages with these ends, `replicas` devices each, in the given order.
Layout layout_of(const LayoutProblem& problem, const std::vector<int32_t>& ends,
                 const DeviceOrder& order, int32_t replicas) {
  Layout layout;
  int32_t first = 0, device = 0;
  for (const int32_t end : ends) {
    layout.push_back(stage_of(problem, {first, end}, order, {device, device + replicas}));
    first = end;
    device += replicas;
  }
  return layout;
}

int32_t most_stages(const LayoutProblem& problem) {
  return std::min(problem.layer_count(), problem.device_count());
}

// Work of the first i layers.
std::vector<double> work_of(const LayoutProblem& problem) {
  std::vector<double> work;
  for (int32_t layer = 0; layer <= problem.layer_count(); ++layer) {
    work.push_back(problem.forward({0, layer}) + problem.backward({0, layer}));
  }
  return work;
}

// Cuts layers into stages of about the same work. Row n has, for each number of first layers, the
// busiest of their n stages. Rows are kept for some n only, and made again from these.
class BalancedCuts {
 public:
  BalancedCuts(std::vector<double> work, int32_t stages)
      : work_(std::move(work)), stages_(stages), block_(1) {
    while (block_ * block_ < stages_) ++block_;
  }

  std::vector<int32_t> ends() const {
    const size_t width = work_.size();
    std::vector<double> row(width, kUnlimited);
    row[0] = 0;
    std::vector<std::vector<double>> kept;  // rows 0, block_, 2 block_, ...
    for (int32_t n = 0; n < stages_; ++n) {
      if (n % block_ == 0) kept.push_back(row);
      row = next(row, n + 1);
    }
    std::vector<int32_t> ends(at(stages_));
    auto end = static_cast<int32_t>(width) - 1;
    for (int32_t b = static_cast<int32_t>(kept.size()); b-- > 0;) {
      std::vector<std::vector<double>> rows = {std::move(kept[at(b)])};
      const int32_t last = std::min(stages_, (b + 1) * block_);
      for (int32_t n = b * block_ + 1; n < last; ++n) rows.push_back(next(rows.back(), n));
      for (int32_t n = last; n > b * block_; --n) {
        ends[at(n - 1)] = end;
        end = first_layer(rows[at(n - 1 - b * block_)], n, end);
      }
    }
    return ends;
  }

 private:
  double stage(int32_t first, int32_t end) const { return work_[at(end)] - work_[at(first)]; }

  // The row of `count` stages. More layers never have a shorter busiest stage, so the best first
  // layer of the last stage only moves up.
  std::vector<double> next(const std::vector<double>& row, int32_t count) const {
    std::vector<double> longer(row.size(), kUnlimited);
    int32_t first = count - 1;
    for (auto end = count; end < static_cast<int32_t>(row.size()); ++end) {
      while (first + 1 < end && row[at(first)] < stage(first, end)) ++first;
      double least = std::max(row[at(first)], stage(first, end));
      if (first >= count) least = std::min(least, stage(first - 1, end));
      longer[at(end)] = least;
    }
    return longer;
  }
  // The first of the best first layers of the last of `count` stages.
  int32_t first_layer(const std::vector<double>& row, int32_t count, int32_t end) const {
    int32_t best = count - 1;
    double least = kUnlimited;
    for (int32_t first = count - 1; first < end; ++first) {
      const double busiest = std::max(row[at(first)], stage(first, end));
      if (busiest < least) {
        least = busiest;
        best = first;
      }
    }
    return best;
  }

  std::vector<double> work_;
  int32_t stages_, block_;
};

}  // namespace

Layout one_stage_layout(const LayoutProblem& problem) {
  return {stage_of(problem, {0, problem.layer_count()}, natural_order(problem),
                   {0, problem.device_count()})};
}

Layout even_layout(const LayoutProblem& problem) {
  const int64_t stages = most_stages(problem);
  std::vector<int32_t> ends;
  for (int64_t n = 1; n <= stages; ++n) {
    ends.push_back(static_cast<int32_t>(n * problem.layer_count() / stages));
  }
  return layout_of(problem, ends, natural_order(problem), 1);
}

Layout balanced_layout(const LayoutProblem& problem) {
  const BalancedCuts cuts(work_of(problem), most_stages(problem));
  return layout_of(problem, cuts.ends(), natural_order(problem), 1);
}

namespace {

// The cuts of the model that a rule considers: all, or `most` in places that share the work about
// equally; in the neighbourhood of each place, the cut with the fewest bytes.
std::vector<int32_t> cuts_of(const LayoutProblem& problem, int32_t most) {
  const int32_t layers = problem.layer_count();
  std::vector<int32_t> cuts = {0};
  if (layers <= most) {
    for (int32_t layer = 1; layer <= layers; ++layer) cuts.push_back(layer);
    return cuts;
  }
  const std::vector<double> work = work_of(problem);
  int32_t layer = 1;
  for (int32_t place = 1; place < most; ++place) {
    const double until = work.back() * (place + 0.5) / most;
    int32_t best = -1;
    for (; layer < layers && work[at(layer)] < until; ++layer) {
      if (best < 0 || problem.cut(layer) < problem.cut(best)) best = layer;
    }
    if (best > 0) cuts.push_back(best);
  }
  cuts.push_back(layers);
  return cuts;
}

// The ends of at most `most` groups of devices of about the same size, after a 0.
std::vector<int32_t> groups_of(const LayoutProblem& problem, int32_t most) {
  const int64_t devices = problem.device_count();
  const int64_t groups = std::min<int64_t>(devices, most);
  std::vector<int32_t> ends;
  for (int64_t g = 0; g <= groups; ++g) ends.push_back(static_cast<int32_t>(devices * g / groups));
  return ends;
}

// The program of flat_rate_layout(). State (cut, group): the layers before the cut on the devices
// before the end of the group.
class FlatRateProgram {
 public:
  explicit FlatRateProgram(const LayoutProblem& problem)
      : problem_(problem),
        cuts_(cuts_of(problem, kMostCuts)),
        groups_(groups_of(problem, kMostGroups)),
        factors_(at(problem.device_count()) + 1),
        states_(cuts_.size() * groups_.size()) {
    const double rate = slowest_inside(problem, natural_order(problem));
    for (size_t i = 1; i < factors_.size(); ++i) {
      const auto replicas = static_cast<double>(i);
      factors_[i] = {1 / replicas, 4 * (replicas - 1) / (replicas * replicas * rate),
                     2 / (rate * replicas)};
    }
    const std::vector<double> work = work_of(problem);
    for (const int32_t cut : cuts_) {
      work_.push_back(work[at(cut)]);
      parameters_.push_back(problem.parameters({0, cut}));
    }
  }

  Layout run() {
    for (size_t cut = 1; cut < cuts_.size(); ++cut) {
      for (size_t group = 1; group < groups_.size(); ++group) state(cut, group) = best(cut, group);
    }
    Layout layout;
    const DeviceOrder order = natural_order(problem_);
    for (size_t cut = cuts_.size() - 1, group = groups_.size() - 1; cut > 0;) {
      const State& last = state(cut, group);
      layout.push_back(stage_of(problem_, {cuts_[last.cut], cuts_[cut]}, order,
                                {groups_[last.group], groups_[group]}));
      cut = last.cut;
      group = last.group;
    }
    std::reverse(layout.begin(), layout.end());
    return layout;
  }

 private:
  static constexpr int32_t kMostCuts = 128, kMostGroups = 64;

  struct State {
    double busiest = kUnlimited;
    size_t cut = 0, group = 0;  // where the last stage begins
  };
  State& state(size_t cut, size_t group) { return states_[cut * groups_.size() + group]; }

  // What a stage with a number of replicas, or the link to it, needs for a unit of each kind.
  struct Factors {
    double work = 0, parameters = 0, cut = 0;
  };

  State best(size_t cut, size_t group) {
    State best{stage(0, cut, factors(0, group)), 0, 0};
    for (size_t before = 1; before < cut; ++before) {
      // The fewest replicas first.
      for (size_t first = group - 1; first > 0; --first) {
        const double earlier = state(before, first).busiest;
        if (earlier >= best.busiest) continue;
        const Factors& each = factors(first, group);
        const double busiest =
            std::max({earlier, each.cut * problem_.cut(cuts_[before]), stage(before, cut, each)});
        if (busiest < best.busiest) best = {busiest, before, first};
      }
    }
    return best;
  }
  const Factors& factors(size_t first_group, size_t end_group) const {
    return factors_[at(groups_[end_group] - groups_[first_group])];
  }
  double stage(size_t first, size_t end, const Factors& each) const {
    return each.work * (work_[end] - work_[first]) +
           each.parameters * (parameters_[end] - parameters_[first]);
  }

  const LayoutProblem& problem_;
  std::vector<int32_t> cuts_, groups_;
  std::vector<double> work_, parameters_;  // before each cut
  std::vector<Factors> factors_;           // by the number of replicas
  std::vector<State> states_;
};

}  // namespace

Layout flat_rate_layout(const LayoutProblem& problem) { return FlatRateProgram(problem).run(); }

namespace {

// The slowest rates and speeds, and the smallest memories, of runs of groups of devices.
class GroupRuns {
 public:
  GroupRuns(const LayoutProblem& problem, const std::vector<int32_t>& groups)
      : count_(groups.size()), runs_(count_ * count_), between_(count_ * count_ * count_) {
    std::vector<double> slowest(count_ * count_, kUnlimited);  // between two groups
    std::vector<DeviceOrder> devices(count_);
    for (size_t group = 0; group + 1 < count_; ++group) {
      for (int32_t i = groups[group]; i < groups[group + 1]; ++i) devices[group].push_back(i);
    }
    for (size_t one = 0; one + 1 < count_; ++one) {
      slowest[one * count_ + one] = slowest_inside(problem, devices[one]);
      for (size_t other = one + 1; other + 1 < count_; ++other) {
        slowest[one * count_ + other] = slowest_between(problem, devices[one], devices[other]);
      }
    }
    for (size_t first = 0; first + 1 < count_; ++first) {
      Run run;
      for (size_t end = first + 1; end < count_; ++end) {
        for (int32_t i = groups[end - 1]; i < groups[end]; ++i) {
          run.speed = std::min(run.speed, problem.speed(i));
          run.memory = std::min(run.memory, problem.memory(i));
          run.total += problem.speed(i);
        }
        for (size_t g = first; g < end; ++g) {
          run.rate = std::min(run.rate, slowest[g * count_ + end - 1]);
        }
        runs_[first * count_ + end] = run;
        double rate = kUnlimited;
        for (size_t last = end; last + 1 < count_; ++last) {
          for (size_t g = first; g < end; ++g) {
            rate = std::min(rate, slowest[g * count_ + last]);
          }
          between_[(first * count_ + end) * count_ + last + 1] = rate;
        }
      }
    }
  }

  struct Run {
    double rate = kUnlimited, speed = kUnlimited, memory = kUnlimited;
    double total = 0;  // speed of all
  };
  const Run& run(size_t first, size_t end) const { return runs_[first * count_ + end]; }
  // Between the groups first, ..., middle - 1 and middle, ..., end - 1.
  double between(size_t first, size_t middle, size_t end) const {
    return between_[(first * count_ + middle) * count_ + end];
  }

 private:
  size_t count_;
  std::vector<Run> runs_;
  std::vector<double> between_;
};

// The search of exposed_reduction_layout(): depth first over the stages, from the front.
class ExposedReductionSearch {
 public:
  ExposedReductionSearch(const LayoutProblem& problem, bool memory)
      : problem_(problem),
        memory_(memory && problem.memory_is_limited()),
        micros_(problem.settings().micros),
        cuts_(cuts_of(problem, kMostCuts)),
        groups_(groups_of(problem, kMostGroups)),
        runs_(problem, groups_) {}

  std::optional<Layout> run() {
    for (stages_ = 1; stages_ <= kMostStages; ++stages_) visit({});
    if (best_.empty()) return std::nullopt;
    Layout layout;
    const DeviceOrder order = natural_order(problem_);
    Place first;
    for (const Place& end : best_) {
      layout.push_back(stage_of(problem_, {cuts_[first.cut], cuts_[end.cut]}, order,
                                {groups_[first.group], groups_[end.group]}));
      first = end;
    }
    return layout;
  }

 private:
  static constexpr int32_t kMostCuts = 64, kMostGroups = 16;
  static constexpr size_t kMostStages = 4;

  // Where a stage begins or ends.
  struct Place {
    size_t cut = 0, group = 0;
  };
  // The stages so far, and the link behind them.
  struct Front {
    Place end;
    size_t first_group = 0;  // of the last stage
    double way = 0;          // of one micro-batch, there and back
    double busiest = 0;      // stage or link, for one micro-batch
    double backward = 0;     // of one micro-batch, with the transfers back
    double exposed = 0;      // longest time by which a reduction outlasts the backwards before it

    double step(double micros) const { return way + (micros - 1) * busiest + exposed; }
  };

  void visit(const Front& front) {
    const bool last = path_.size() + 1 == stages_;
    const size_t all_groups = groups_.size() - 1, all_cuts = cuts_.size() - 1;
    const size_t behind = stages_ - path_.size() - 1;
    for (size_t group = last ? all_groups : front.end.group + 1; group + behind <= all_groups;
         ++group) {
      const Front linked = with_link(front, group);
      if (linked.step(micros_) >= least_) continue;
      for (size_t cut = last ? all_cuts : front.end.cut + 1; cut + behind <= all_cuts; ++cut) {
        const Front longer = with_stage(linked, {cut, group});
        if (longer.step(micros_) >= least_) break;  // and with more layers even more
        if (!last && step_with_rest(longer) >= least_) continue;
        if (memory_ && !fits(linked.end, longer.end)) break;
        path_.push_back(longer.end);
        if (last) {
          least_ = longer.step(micros_);
          best_ = path_;
        } else {
          visit(longer);
        }
        path_.pop_back();
      }
    }
  }

  double replicas(size_t first, size_t end) const { return groups_[end] - groups_[first]; }

  // The front with the link to a stage that ends with this group.
  Front with_link(Front front, size_t group) const {
    if (path_.empty()) return front;
    const double pairs =
        replicas(front.first_group, front.end.group) * replicas(front.end.group, group);
    const double time = problem_.cut(cuts_[front.end.cut]) /
                        (pairs * runs_.between(front.first_group, front.end.group, group));
    front.way += 2 * time;
    front.busiest = std::max(front.busiest, 2 * time);
    front.backward += time;
    return front;
  }
  Front with_stage(Front front, Place end) const {
    const GroupRuns::Run& run = runs_.run(front.end.group, end.group);
    const double count = replicas(front.end.group, end.group);
    const Layers layers{cuts_[front.end.cut], cuts_[end.cut]};
    const StageLoad load = split_load(problem_, layers, {count, run.speed, run.rate});
    front.way += load.both();
    front.busiest = std::max(front.busiest, load.both());
    front.exposed = std::max(front.exposed, load.reduction - front.backward);
    front.backward += load.backward;
    front.first_group = front.end.group;
    front.end = end;
    return front;
  }
  // A lower bound on the step with the stages behind: all their devices do all their work together.
  double step_with_rest(Front front) const {
    const Layers layers{cuts_[front.end.cut], problem_.layer_count()};
    const double time = (problem_.forward(layers) + problem_.backward(layers)) /
                        runs_.run(front.end.group, groups_.size() - 1).total;
    front.way += time;
    front.busiest = std::max(front.busiest, time);
    return front.step(micros_);
  }
  bool fits(Place first, Place end) const {
    const Layers layers{cuts_[first.cut], cuts_[end.cut]};
    const int32_t in_flight =
        least_in_flight(problem_.settings(), static_cast<int32_t>(stages_ - path_.size()) - 1);
    return held_bytes(problem_, layers).bytes(in_flight, replicas(first.group, end.group)) <=
           runs_.run(first.group, end.group).memory;
  }

  const LayoutProblem& problem_;
  bool memory_;
  double micros_;
  std::vector<int32_t> cuts_, groups_;
  GroupRuns runs_;
  size_t stages_ = 0;  // of the layouts that are visited now
  std::vector<Place> path_, best_;
  double least_ = kUnlimited;
};

}  // namespace

std::optional<Layout> exposed_reduction_layout(const LayoutProblem& problem, bool memory) {
  return ExposedReductionSearch(problem, memory).run();
}

namespace {

// The ends of stages with these speeds, none of which is longer than `time` while each takes as
// many layers as it can; empty when there is no way.
std::vector<int32_t> ends_within(const std::vector<double>& work, const std::vector<double>& speeds,
                                 double time) {
  const auto layers = static_cast<int32_t>(work.size()) - 1;
  std::vector<int32_t> ends;
  int32_t end = 0;
  for (size_t n = 0; n < speeds.size(); ++n) {
    const int32_t first = end++;
    // Each stage behind gets a layer at least.
    const int32_t most = layers - static_cast<int32_t>(speeds.size() - 1 - n);
    const double until = work[at(first)] + time * speeds[n];
    if (work[at(end)] > until) return {};
    while (end < most && work[at(end) + 1] <= until) ++end;
    ends.push_back(end);
  }
  return end == layers ? ends : std::vector<int32_t>();
}

}  // namespace

DeviceOrder speed_order(const LayoutProblem& problem) {
  DeviceOrder order = linkage_order(problem);
  std::stable_sort(order.begin(), order.end(), [&](int32_t one, int32_t other) {
    return problem.speed(one) > problem.speed(other);
  });
  return order;
}

std::optional<Layout> virtual_worker_layout(const LayoutProblem& problem, const DeviceOrder& order,
                                            int32_t count) {
  const int32_t stages = problem.device_count() / count;
  if (problem.device_count() % count != 0 || stages > problem.layer_count()) return std::nullopt;
  std::vector<double> speeds;  // of each stage: that of its slowest replica
  for (int32_t n = 1; n <= stages; ++n) speeds.push_back(problem.speed(order[at(n * count) - 1]));
  const std::vector<double> work = work_of(problem);
  // Enough for all layers on the slowest stage, whatever the rounding.
  double low = 0, high = 1.01 * work.back() / speeds.back();
  std::vector<int32_t> ends = ends_within(work, speeds, high);
  for (int probe = 0; probe < 50 && !ends.empty(); ++probe) {
    const double middle = (low + high) / 2;
    std::vector<int32_t> shorter = ends_within(work, speeds, middle);
    (shorter.empty() ? low : high) = middle;
    if (!shorter.empty()) ends = std::move(shorter);
  }
  return layout_of(problem, ends, order, count);
}

}  // namespace tenuto
