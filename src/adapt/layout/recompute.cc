#include "adapt/layout/recompute.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace tenuto {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
// The most candidate stages that the programs of one search may try with all numbers of replicas. A
// larger search takes equal numbers of replicas only, and two orders of the devices.
constexpr double kMostSteps = 5e7;
constexpr size_t kShapes = 48;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The dynamic program for one order of the devices. A stage takes whole units of `unit` devices.
class RecomputingProgram {
 public:
  // `most_units`: the most units that one stage may take.
  RecomputingProgram(const LayoutProblem& problem, const std::vector<int32_t>& order, int32_t unit,
                     int32_t most_units)
      : problem_(problem),
        order_(order),
        unit_(unit),
        unit_count_(static_cast<int32_t>(order.size()) / unit),
        most_units_(most_units) {}

  // Finds the layout with `count` stages whose busiest stage has least load; empty if none fits.
  Layout run(int32_t count) {
    count_ = count;
    states_.assign(at(count + 1) * at(layers() + 1) * at(unit_count_ + 1), {});
    state(0, 0, 0).load = 0;
    for (int32_t n = 0; n < count; ++n) {
      for (int32_t u = n; u < unit_count_; ++u) {
        for (int32_t first = n; first < layers(); ++first) {
          if (state(n, first, u).load < kNone) extend(n, first, u);
        }
      }
    }
    int32_t units = 0;
    for (int32_t u = count; u <= unit_count_; ++u) {
      if (state(count, layers(), u).load < state(count, layers(), units).load) units = u;
    }
    return state(count, layers(), units).load < kNone ? layout(units) : Layout{};
  }

 private:
  // A layout of some first stages. `first` and `units`: the layer and unit where the last begins.
  struct State {
    double load = kNone;
    int32_t first = 0, units = 0;
    bool recompute = false;
  };

  int32_t layers() const { return problem_.layer_count(); }
  State& state(int32_t n, int32_t layers_end, int32_t units) {
    return states_[(at(n) * at(layers() + 1) + at(layers_end)) * at(unit_count_ + 1) + at(units)];
  }

  // Adds stage n after layout (n, first, begin), with every end at which it fits.
  void extend(int32_t n, int32_t first, int32_t begin) {
    const double before = state(n, first, begin).load;
    const int32_t behind = count_ - n - 1;  // later stages: each needs a layer and a unit
    const int32_t in_flight = least_in_flight(problem_.settings(), behind);
    double memory = kNone, speed = kNone;
    for (int32_t end = begin + 1; end <= std::min(begin + most_units_, unit_count_ - behind);
         ++end) {
      for (int32_t i = (end - 1) * unit_; i < end * unit_; ++i) {
        memory = std::min(memory, problem_.memory(order_[at(i)]));
        speed = std::min(speed, problem_.speed(order_[at(i)]));
      }
      const double replicas = (end - begin) * unit_;
      Stage stage{first, first, {}};
      for (stage.layer_end = first + 1; stage.layer_end <= layers() - behind; ++stage.layer_end) {
        if (!fits(stage, in_flight, replicas, memory)) break;
        const double time =
            stage_work(problem_, {first, stage.layer_end}, stage.recompute, replicas).both();
        const double load =
            std::max(before, problem_.settings().micros * time / (replicas * speed));
        State& reached = state(n + 1, stage.layer_end, end);
        if (load < reached.load) reached = {load, first, begin, stage.recompute};
      }
    }
  }

  // Whether the stage fits into memory. Turns recomputation on if it does not fit without. A stage
  // with more layers never needs less memory.
  bool fits(Stage& stage, int32_t in_flight, double replicas, double memory) const {
    for (const bool recompute : {false, true}) {
      stage.recompute = recompute;
      if (held_bytes(problem_, stage).bytes(in_flight, replicas) <= memory) return true;
    }
    return false;
  }

  Layout layout(int32_t units) {
    Layout layout(at(count_));
    int32_t end = layers();
    for (int32_t n = count_; n > 0; --n) {
      const State& reached = state(n, end, units);
      Stage& stage = layout[at(n - 1)];
      stage = {reached.first, end, {}, reached.recompute};
      for (int32_t i = reached.units * unit_; i < units * unit_; ++i) {
        stage.holders.push_back(problem_.worker(order_[at(i)]));
      }
      std::sort(stage.holders.begin(), stage.holders.end());
      end = reached.first;
      units = reached.units;
    }
    return layout;
  }

  const LayoutProblem& problem_;
  const std::vector<int32_t>& order_;
  const int32_t unit_, unit_count_, most_units_;
  int32_t count_ = 0;
  std::vector<State> states_;
};

// Orders of the devices. If at most `most` orders differ in memory or speed: all of these. If more:
// two orders, by number, and with the largest memory first.
std::vector<std::vector<int32_t>> orders_of(const LayoutProblem& problem, double most) {
  std::vector<int32_t> order(at(problem.device_count()));
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](int32_t one, int32_t other) {
    return std::pair(problem.memory(one), problem.speed(one)) >
           std::pair(problem.memory(other), problem.speed(other));
  };
  std::vector<std::vector<int32_t>> orders = {order};
  std::stable_sort(order.begin(), order.end(), larger);
  orders.push_back(order);
  while (std::next_permutation(order.begin(), order.end(), larger)) {
    if (static_cast<double>(orders.size()) >= most) return {orders[0], orders[1]};
    orders.push_back(order);
  }
  return orders;
}

std::vector<size_t> replicas_of(const Layout& layout) {
  std::vector<size_t> replicas;
  for (const Stage& stage : layout) replicas.push_back(stage.holders.size());
  return replicas;
}

// Keeps the best layout of each shape (numbers of replicas of the stages).
class Shapes {
 public:
  explicit Shapes(const LayoutProblem& problem) : problem_(problem) {}

  bool empty() const { return all_.empty(); }
  void add(Layout layout) {
    if (layout.empty()) return;
    ++priced_;
    PricedLayout priced{std::move(layout), {}, {}};
    priced.loads = row_split_loads(problem_, priced.layout);
    BlockEffort effort;
    effort.most_in_flight = most_in_flight(problem_, priced.layout);
    auto schedule = best_schedule(priced.loads, effort);
    if (!schedule) return;
    priced.schedule = std::move(*schedule);
    const auto same = std::find_if(all_.begin(), all_.end(), [&](const PricedLayout& other) {
      return replicas_of(other.layout) == replicas_of(priced.layout);
    });
    if (same == all_.end()) {
      all_.push_back(std::move(priced));
    } else if (priced.schedule.makespan < same->schedule.makespan) {
      *same = std::move(priced);
    }
  }
  LayoutSearch result() {
    std::stable_sort(all_.begin(), all_.end(), [](const auto& one, const auto& other) {
      return one.schedule.makespan < other.schedule.makespan;
    });
    if (all_.size() > kShapes) all_.resize(kShapes);
    LayoutSearch search;
    search.best = all_[0];
    search.how = "stages that recompute";
    if (all_.size() > 1) search.runner_up = all_[1];
    for (const PricedLayout& priced : all_) search.shapes.push_back(priced.layout);
    search.priced = priced_;
    return search;
  }

 private:
  const LayoutProblem& problem_;
  std::vector<PricedLayout> all_;
  int64_t priced_ = 0;
};

}  // namespace

std::optional<LayoutSearch> search_recomputing(const LayoutProblem& problem, Watch* watch) {
  if (!problem.memory_is_limited()) return std::nullopt;
  begin_part(watch, "letting stages recompute");
  const int32_t devices = problem.device_count(), layers = problem.layer_count();
  const int32_t most = std::min(devices, layers);
  // For one order of the devices with any numbers of replicas.
  const double steps = 1.0 * most * layers * layers * devices * devices / 4;
  const bool any = steps <= kMostSteps;
  const std::vector<std::vector<int32_t>> orders = orders_of(problem, any ? kMostSteps / steps : 2);
  Shapes shapes(problem);
  for (int32_t count = 1; count <= most; count += any ? 1 : 1 + count / 16) {
    for (const std::vector<int32_t>& order : orders) {
      if (!shapes.empty() && is_over(watch)) return shapes.result();
      RecomputingProgram program(problem, order, any ? 1 : devices / count, any ? devices : 1);
      shapes.add(program.run(count));
      count_item(watch);
    }
  }
  if (shapes.empty()) return std::nullopt;
  return shapes.result();
}

}  // namespace tenuto
