#include "adapt/layout/layout_bound.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace tenuto {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
// A step that exceeds a limit by this share or less counts as within it: sums are rounded.
constexpr double kRounding = 1e-12;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Sums over the first i layers.
struct Sums {
  std::vector<double> forward, work, parameters, updates;  // work: forward and backward

  explicit Sums(const LayoutProblem& problem) {
    for (int32_t layer = 0; layer <= problem.layer_count(); ++layer) {
      const Layers layers{0, layer};
      forward.push_back(problem.forward(layers));
      work.push_back(problem.forward(layers) + problem.backward(layers));
      parameters.push_back(problem.parameters(layers));
      updates.push_back(problem.update(layers) - problem.update({0, 0}));
    }
  }
};

// All rates between different devices, for a few devices. [one x devices + other]
std::vector<double> rates_of(const LayoutProblem& problem) {
  const int32_t count = problem.device_count();
  std::vector<double> rates(at(count) * at(count), 0);
  for (int32_t one = 0; one < count; ++one) {
    for (int32_t other = 0; other < count; ++other) {
      if (one != other) rates[at(one) * at(count) + at(other)] = problem.rate(one, other);
    }
  }
  return rates;
}

// For each number of devices: the fastest rate such that this many devices are connected by pairs
// of this rate or a faster one, perhaps through each other. Grows a maximum spanning tree device by
// device and then joins the groups at the ends of its pairs, the fastest pair first.
std::vector<double> best_connected(const LayoutProblem& problem) {
  const size_t count = at(problem.device_count());
  struct Pair {
    double rate = 0;
    size_t one = 0, other = 0;
  };
  std::vector<Pair> tree;
  std::vector<Pair> outside;  // for each device outside the tree, its fastest pair into it
  for (size_t device = 1; device < count; ++device) outside.push_back({-1, 0, device});
  size_t added = 0;
  std::vector<double> rates;
  while (!outside.empty()) {
    problem.rates_from(static_cast<int32_t>(added), rates);
    size_t next = 0;
    for (size_t i = 0; i < outside.size(); ++i) {
      const double rate = rates[outside[i].other];
      if (rate > outside[i].rate) outside[i] = {rate, added, outside[i].other};
      if (outside[i].rate > outside[next].rate) next = i;
    }
    tree.push_back(outside[next]);
    added = outside[next].other;
    outside[next] = outside.back();
    outside.pop_back();
  }
  std::stable_sort(tree.begin(), tree.end(),
                   [](const Pair& a, const Pair& b) { return a.rate > b.rate; });
  std::vector<size_t> group(count), size(count, 1);
  std::iota(group.begin(), group.end(), size_t{0});
  std::vector<double> best(count + 1, kUnlimited);
  size_t largest = 1;
  for (const Pair& pair : tree) {
    size_t one = pair.one, other = pair.other;
    while (group[one] != one) one = group[one] = group[group[one]];
    while (group[other] != other) other = group[other] = group[group[other]];
    group[other] = one;
    size[one] += size[other];
    while (largest < size[one]) best[++largest] = pair.rate;
  }
  return best;
}

// True when at least one device is left after all that have fewer than `degree` remaining partners
// at `rate` or faster were removed. A set of degree + 1 devices whose pairs are all that fast
// stays.
bool has_core(const std::vector<double>& rates, size_t count, size_t degree, double rate) {
  std::vector<size_t> partners(count, 0), removed;
  std::vector<bool> left(count, true);
  for (size_t one = 0; one < count; ++one) {
    for (size_t other = 0; other < count; ++other) {
      if (one != other && rates[one * count + other] >= rate) ++partners[one];
    }
    if (partners[one] >= degree) continue;
    left[one] = false;
    removed.push_back(one);
  }
  for (size_t i = 0; i < removed.size(); ++i) {
    for (size_t other = 0; other < count; ++other) {
      if (!left[other] || rates[removed[i] * count + other] < rate) continue;
      if (--partners[other] >= degree) continue;
      left[other] = false;
      removed.push_back(other);
    }
  }
  return removed.size() < count;
}

// The best that any devices of a number can offer. Above a limit of devices it is coarser.
class BestSets {
 public:
  BestSets(const LayoutProblem& problem, bool fine) : inside_(best_connected(problem)) {
    const int32_t count = problem.device_count();
    for (int32_t device = 0; device < count; ++device) speed_.push_back(problem.speed(device));
    std::sort(speed_.begin(), speed_.end(), std::greater<>());
    equal_ = speed_.front() == speed_.back();
    total_.assign(1, 0);
    fastest_.assign(1, 0);
    for (int32_t r = 1; r <= count; ++r) {
      total_.push_back(total_.back() + speed_[at(r - 1)]);
      fastest_.push_back(std::max(fastest_.back(), r * speed_[at(r - 1)]));
    }
    if (!fine) return;
    const std::vector<double> connected = inside_;
    const std::vector<double> rates = rates_of(problem);
    take_cores(rates);
    take_partners(rates, connected);
  }

  // An upper bound on the slowest rate within r devices.
  double inside(int32_t r) const { return inside_[at(r)]; }
  // An upper bound on the slowest rate between r devices and q others. Requires: fine
  double between(int32_t r, int32_t q) const { return between_[at(r) * inside_.size() + at(q)]; }
  // The speed of r devices together, which all wait for the slowest one.
  double speed(int32_t r) const { return r * speed_[at(r - 1)]; }
  // The speed of the slowest of r devices.
  double slowest(int32_t r) const { return speed_[at(r - 1)]; }
  // The same as speed() for at most r devices.
  double fastest(int32_t r) const { return fastest_[at(r)]; }
  // The sum of the speeds of the r fastest devices.
  double total(int32_t r) const { return total_[at(r)]; }
  bool equal_speeds() const { return equal_; }
  // The fastest pair.
  double fastest_pair() const { return inside_.size() > 2 ? inside_[2] : kUnlimited; }

 private:
  void take_cores(const std::vector<double>& rates) {
    const size_t count = speed_.size();
    std::vector<double> levels = rates;
    std::sort(levels.begin(), levels.end());
    levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
    for (size_t r = 2; r <= count; ++r) {
      // The highest level with a core; the lowest always has one.
      size_t low = 0, high = levels.size();
      while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        (has_core(rates, count, r - 1, levels[middle]) ? low : high) = middle;
      }
      inside_[r] = std::min(inside_[r], levels[low]);
    }
  }

  // Of r devices, each has a rate of at least the slowest one to q others; and the other way round.
  void take_partners(const std::vector<double>& rates, const std::vector<double>& connected) {
    const size_t count = speed_.size();
    std::vector<std::vector<double>> partners(count);  // [q - 1][i] = q-th fastest rate of device i
    for (size_t one = 0; one < count; ++one) {
      std::vector<double> row;
      for (size_t other = 0; other < count; ++other) {
        if (other != one) row.push_back(rates[one * count + other]);
      }
      std::sort(row.begin(), row.end(), std::greater<>());
      for (size_t q = 1; q < count; ++q) partners[q].push_back(row[q - 1]);
    }
    for (std::vector<double>& column : partners) {
      std::sort(column.begin(), column.end(), std::greater<>());
    }
    between_.assign((count + 1) * (count + 1), 0);
    for (size_t r = 1; r < count; ++r) {
      for (size_t q = 1; r + q <= count; ++q) {
        between_[r * (count + 1) + q] =
            std::min({connected[r + q], partners[q][r - 1], partners[r][q - 1]});
      }
    }
  }

  std::vector<double> inside_, between_;
  std::vector<double> speed_;  // descending
  std::vector<double> total_, fastest_;
  bool equal_ = true;
};

// Finds the least limit for which feasible(limit) does not say that no layout stays within it, from
// below, to a relative precision of `precision`. feasible() must be right when it says no.
template <class Feasible>
double least_feasible(double low, double precision, const Feasible& feasible) {
  if (low <= 0) return 0;
  double high = low * (1 + precision);
  for (double step = 0.01; !feasible(high); step *= 2) {
    low = high;
    high = low * (1 + step);
  }
  while (high > low * (1 + precision)) {
    const double middle = std::sqrt(low * high);
    (feasible(middle) ? high : low) = middle;
  }
  return low;
}

// Asks whether some layout's step stays within a limit, by conditions that each such layout fulfils
// (compare least_makespan). With the devices counted, but not told apart, it adds stages from the
// front. For the first stages it keeps three numbers, each the least that any such stages have:
//   head:   time from the start of the step until the first micro-batch's forward ends on the last
//           of these stages
//   around: head, and the time from the start of the last micro-batch's backward there to the end
//           of the step
//   speed:  sum of the speeds that these stages need
class StageProgram {
 public:
  // `tracked`: keeps the least numbers for each number of devices that the last stage has.
  StageProgram(const LayoutProblem& problem, const Sums& sums, const BestSets& best, bool tracked)
      : problem_(problem),
        sums_(sums),
        best_(best),
        layers_(problem.layer_count()),
        devices_(problem.device_count()),
        tracked_(tracked),
        updates_(problem.layers_have_updates()),
        micros_(problem.settings().micros),
        half_duplex_(problem.half_duplex()) {
    for (int32_t layer = 0; layer <= layers_; ++layer) cut_.push_back(problem.cut(layer));
    for (int32_t i = 0; i <= devices_; ++i) {
      first_state_.push_back(states_.size());
      states_.resize(states_.size() + (tracked ? at(i) : 1));
    }
    take_widest();
  }

  // False only when the step of every layout is longer.
  bool feasible(double limit) {
    limit_ = limit * (1 + kRounding);
    find_reach();
    find_rest();
    for (State& state : states_) state = State(at(layers_) + 1);
    for (int32_t i = 1; i <= devices_; ++i) {
      for (int32_t r = 1; r <= i; ++r) {
        const Stages stages = stages_of(i, r);
        add_first(stages);
        for (int32_t q = tracked_ ? 1 : i - r; q <= i - r && q >= 1; ++q) add(stages, q);
      }
      for (size_t s = first_state_[at(i)]; s < end_state(i); ++s) {
        if (states_[s].around[at(layers_)] < kUnlimited) return true;
      }
    }
    return false;
  }

 private:
  // The three numbers, for some first stages.
  struct Least {
    double head = kUnlimited, around = kUnlimited, speed = kUnlimited;
  };
  // The three numbers for some number of devices, by the number of layers.
  struct State {
    std::vector<double> head, around, speed;  // [layers]
    int32_t first = 0, end = 0;               // of the entries that are not infinite

    State() = default;
    explicit State(size_t size)
        : head(size, kUnlimited), around(size, kUnlimited), speed(size, kUnlimited) {}
    void take(int32_t layers, const Least& least) {
      const size_t index = at(layers);
      head[index] = std::min(head[index], least.head);
      around[index] = std::min(around[index], least.around);
      speed[index] = std::min(speed[index], least.speed);
      first = end == 0 ? layers : std::min(first, layers);
      end = std::max(end, layers + 1);
    }
  };
  // Stages that use `devices`, `last` of them in the last stage.
  struct Stages {
    int32_t devices = 0, last = 0;
    double speed = 0;      // of the last stage
    double reduction = 0;  // of a byte of parameters
    double update = 0;     // of a nanosecond of the update
    double step = 0;       // of the update, without those of the layers
    double pass = 0;       // constant work of a forward, on all devices of the last stage
  };

  size_t end_state(int32_t devices) const {
    return devices == devices_ ? states_.size() : first_state_[at(devices + 1)];
  }
  State& state(int32_t devices, int32_t last) {
    return states_[first_state_[at(devices)] + (tracked_ ? at(last) - 1 : 0)];
  }

  // For each number of devices of a stage and each number of devices before it: the fastest
  // transfer of a byte between it and the stage before.
  void take_widest() {
    widest_.assign(at(devices_ + 1) * at(devices_ + 1), kUnlimited);
    for (int32_t r = 1; r < devices_; ++r) {
      double* const row = &widest_[at(r) * at(devices_ + 1)];
      for (int32_t q = 1; r + q <= devices_; ++q) {
        row[q] = std::min(row[q - 1], 1 / (best_.between(r, q) * r * q));
      }
    }
  }
  double widest(int32_t r, int32_t before) const {
    return widest_[at(r) * at(devices_ + 1) + at(before)];
  }

  double reduction(const Stages& stages, int32_t first, int32_t end) const {
    return stages.reduction * (sums_.parameters[at(end)] - sums_.parameters[at(first)]) +
           stages.step +
           (updates_ ? stages.update * (sums_.updates[at(end)] - sums_.updates[at(first)]) : 0);
  }
  // The work of a micro-batch with the layers before `end`, and the constants of its two passes.
  double work_until(const Stages& stages, int32_t end) const {
    return sums_.work[at(end)] + 2 * stages.pass;
  }
  // A lower bound on the step of a stage with these layers.
  double stage_step(const Stages& stages, int32_t first, int32_t end) const {
    return micros_ * (work_until(stages, end) - sums_.work[at(first)]) / stages.speed +
           reduction(stages, first, end);
  }
  // The first layer, from `first` on, with which a stage up to layer `end` stays within the limit.
  int32_t shrink(const Stages& stages, int32_t first, int32_t end) const {
    while (first < end && stage_step(stages, first, end) > limit_) ++first;
    return first;
  }

  Stages stages_of(int32_t devices, int32_t last) const {
    return {devices,
            last,
            best_.speed(last),
            2.0 * (last - 1) / last / best_.inside(last),
            1 / best_.slowest(last),
            problem_.update({0, 0}) / best_.slowest(last),
            last * problem_.pass()};
  }

  // How many first layers so many devices can do, when only the limit of each stage counts.
  void find_reach() {
    reach_.assign(1, 0);
    for (int32_t i = 1; i <= devices_; ++i) {
      int32_t most = reach_.back();
      for (int32_t r = 1; r <= i; ++r) {
        const Stages stages = stages_of(i, r);
        const int32_t first = reach_[at(i - r)];
        while (most < layers_ && stage_step(stages, first, most + 1) <= limit_) ++most;
      }
      reach_.push_back(most);
    }
  }

  // The least time in which one micro-batch gets through the layers from `layer` on, and back, when
  // at most so many devices are left: rest_[devices][layer]. It includes the transfer before the
  // layer.
  void find_rest() {
    rest_.assign(at(devices_), std::vector<double>(at(layers_) + 1, kUnlimited));
    std::vector<int32_t> begin(at(devices_), layers_);  // of the finite entries
    for (int32_t left = 0; left < devices_; ++left) {
      std::vector<double>& rest = rest_[at(left)];
      rest[at(layers_)] = 0;
      for (int32_t r = 1; r <= left; ++r) {
        const Stages stages = stages_of(left, r);
        const double transfer = 2 * widest(r, devices_ - left);
        int32_t first = 0;
        for (int32_t end = std::max(1, begin[at(left - r)]); end <= layers_; ++end) {
          first = shrink(stages, first, end);
          const int32_t last = std::min(end - 1, reach_[at(devices_ - left)]);
          if (first > last) continue;
          begin[at(left)] = std::min(begin[at(left)], first);
          const double after = rest_[at(left - r)][at(end)], work = work_until(stages, end);
          for (int32_t layer = first; layer <= last; ++layer) {
            const double time =
                transfer * cut_[at(layer)] + (work - sums_.work[at(layer)]) / stages.speed + after;
            rest[at(layer)] = std::min(rest[at(layer)], time);
          }
        }
      }
    }
  }

  // True when a last stage stays within the limit. `around`: with this stage; `link`: the time of a
  // transfer before it, in one direction; `rest`: of the stages behind it.
  bool stays(double around, double work, double forward, double link, double rest) const {
    if (around + (micros_ - 1) * work > limit_) return false;
    const double most = std::max({forward, work - forward, link});
    return around + rest + (micros_ - 1) * most <= limit_;
  }

  // The speed that a stage needs to do this work for every micro-batch when the step includes
  // `other` time.
  double speed_for(double work, double other) const {
    return work > 0 ? micros_ * work / (limit_ - other) : 0;
  }

  // One stage with all devices.
  void add_first(const Stages& stages) {
    if (stages.devices != stages.last) return;
    State& to = state(stages.devices, stages.last);
    for (int32_t end = 1; end <= layers_; ++end) {
      const double work = work_until(stages, end) / stages.speed;
      const double forward = (sums_.forward[at(end)] + stages.pass) / stages.speed;
      const double after = reduction(stages, 0, end);
      if (micros_ * work + after > limit_) return;
      const double rest = rest_[at(devices_ - stages.devices)][at(end)];
      if (!stays(after + work, work, forward, 0, rest)) continue;
      to.take(end, {forward, after + work, speed_for(work_until(stages, end), after)});
    }
  }

  // A last stage behind one with q devices (or any number, if that is not tracked).
  void add(const Stages& stages, int32_t q) {
    const State& from = state(stages.devices - stages.last, q);
    if (from.end == 0) return;
    State& to = state(stages.devices, stages.last);
    const double transfer = tracked_ ? 1 / (best_.between(stages.last, q) * stages.last * q)
                                     : widest(stages.last, stages.devices - stages.last);
    int32_t first = from.first;
    for (int32_t end = from.first + 1; end <= layers_; ++end) {
      first = shrink(stages, first, end);
      if (first >= from.end) return;
      if (rest_[at(devices_ - stages.devices)][at(end)] == kUnlimited) continue;
      const Least least = updates_ ? least_with<true>(stages, from, transfer, {first, end})
                                   : least_with<false>(stages, from, transfer, {first, end});
      if (least.around < kUnlimited) to.take(end, least);
    }
  }

  // The least numbers with a last stage that begins with layer range.first or a later one, and ends
  // before layer range.end. `from`: of the stages before it; `transfer`: of a byte to it.
  // kUpdates: whether the updates of layers take time.
  template <bool kUpdates>
  Least least_with(const Stages& stages, const State& from, double transfer, Layers range) const {
    const double end_work = work_until(stages, range.end);
    const double end_forward = sums_.forward[at(range.end)] + stages.pass;
    const double end_parameters = sums_.parameters[at(range.end)];
    const double end_updates = sums_.updates[at(range.end)];
    const double rest = rest_[at(devices_ - stages.devices)][at(range.end)];
    const double most_speed =
        best_.equal_speeds() ? kUnlimited : best_.total(stages.devices) * (1 + kRounding);
    Least least;
    for (size_t layer = at(range.first); layer < at(std::min(range.end, from.end)); ++layer) {
      const double link = transfer * cut_[layer];
      const double work = (end_work - sums_.work[layer]) / stages.speed;
      const double forward = (end_forward - sums_.forward[layer]) / stages.speed;
      double reduction = stages.reduction * (end_parameters - sums_.parameters[layer]);
      if constexpr (kUpdates) reduction += stages.update * (end_updates - sums_.updates[layer]);
      const double before = std::max(from.head[layer] + link + reduction + stages.step,
                                     from.around[layer] + 2 * link);
      if (!stays(before + work, work, forward, link, rest)) continue;
      if (half_duplex_ && from.around[layer] + 2 * micros_ * link > limit_) continue;
      const double speed = from.speed[layer] + speed_for(end_work - sums_.work[layer], before);
      if (speed > most_speed) continue;
      least.head = std::min(least.head, from.head[layer] + link + forward);
      least.around = std::min(least.around, before + work);
      least.speed = std::min(least.speed, speed);
    }
    return least;
  }

  const LayoutProblem& problem_;
  const Sums& sums_;
  const BestSets& best_;
  int32_t layers_, devices_;
  bool tracked_, updates_;
  double micros_;
  bool half_duplex_;
  std::vector<double> cut_, widest_;
  std::vector<State> states_;
  std::vector<size_t> first_state_;  // of each number of devices
  double limit_ = 0;
  std::vector<int32_t> reach_;
  std::vector<std::vector<double>> rest_;
};

// The same question for many devices or layers. It counts the least number of devices that the
// first layers need, with only the limit of each stage, and the time that the first micro-batch
// needs for the layers before it.
class DeviceProgram {
 public:
  DeviceProgram(const LayoutProblem& problem, const Sums& sums, const BestSets& best)
      : problem_(problem), sums_(sums), best_(best), micros_(problem.settings().micros) {
    const int32_t layers = problem.layer_count();
    const int32_t groups = std::min(layers, kMostGroups);
    for (int32_t g = 0; g <= groups; ++g) {
      ends_.push_back(static_cast<int32_t>(int64_t{layers} * g / groups));
    }
  }

  // False only when the step of every layout is longer.
  bool feasible(double limit) {
    limit_ = limit * (1 + kRounding);
    const int32_t most = problem_.device_count();
    // For each number of devices, as far as it can be told, that the first groups of layers need:
    // that number and the most groups that need no more.
    std::vector<std::pair<int32_t, size_t>> needs = {{0, 0}};
    for (size_t end = 1; end < ends_.size(); ++end) {
      int32_t least = most + 1;
      for (size_t i = needs.size(); i-- > 0;) {
        const auto [before, first] = needs[i];
        // The stage begins with some layer of this group.
        const Layers begin{ends_[first], ends_[first + 1] - 1};
        least = std::min(least, before + devices_for(begin, ends_[end], least - 1 - before));
      }
      if (least > most) return false;
      if (least == needs.back().first) needs.back().second = end;
      if (least > needs.back().first) needs.push_back({least, end});
    }
    return true;
  }

 private:
  static constexpr int32_t kMostGroups = 1024;

  // The least number of devices with which a stage up to layer `end` stays within the limit; more
  // than `most` when there is none. It begins with layer begin.first, with begin.end, or between.
  int32_t devices_for(Layers begin, int32_t end, int32_t most) const {
    const double work = sums_.work[at(end)] - sums_.work[at(begin.end)];
    const double parameters = sums_.parameters[at(end)] - sums_.parameters[at(begin.end)];
    // Before the stage's first forward, and in addition after its last backward.
    const double all = best_.fastest(problem_.device_count());
    const double pass = begin.first > 0 ? problem_.pass() / best_.slowest(1) : 0;
    const double head = sums_.forward[at(begin.first)] / all + pass;
    const double around = sums_.work[at(begin.first)] / all + 2 * pass;
    int32_t count = devices_of_speed(micros_ * work / (limit_ - around), most);
    while (count <= most) {
      const double reduction = 2.0 * (count - 1) / count * parameters / best_.inside(count) +
                               problem_.update({begin.end, end}) / best_.slowest(count);
      const double time = limit_ - std::max(around, head + reduction);
      const double passes = 2 * count * problem_.pass();
      const int32_t enough =
          time <= 0 ? most + 1 : devices_of_speed(micros_ * (work + passes) / time, most);
      // More devices need more time for their reduction and have more constants of passes, so this
      // may need a few rounds.
      if (enough <= count) return count;
      count = enough;
    }
    return most + 1;
  }
  // The least number of devices, from 1 to most + 1, that may have this speed together.
  int32_t devices_of_speed(double speed, int32_t most) const {
    if (best_.equal_speeds()) {
      const double count = std::ceil(speed / best_.speed(1) * (1 - kRounding));
      return count > most ? most + 1 : std::max(1, static_cast<int32_t>(count));
    }
    int32_t low = 0, high = most + 1;
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      (best_.fastest(middle) >= speed ? high : low) = middle;
    }
    return high;
  }

  const LayoutProblem& problem_;
  const Sums& sums_;
  const BestSets& best_;
  double micros_;
  std::vector<int32_t> ends_;  // of the groups of layers, after a 0
  double limit_ = 0;
};

// What one probe of StageProgram may cost, in steps of its innermost loop.
constexpr double kMostSteps = 4e7;
constexpr double kMostTrackedSteps = 1e6;
constexpr int32_t kMostFineDevices = 64;

}  // namespace

double least_step(const LayoutProblem& problem) {
  const Sums sums(problem);
  const double layers = problem.layer_count(), devices = problem.device_count();
  const double steps = layers * layers * devices * devices / 6;
  const bool fine = problem.device_count() <= kMostFineDevices && steps <= kMostSteps;
  const BestSets best(problem, fine);
  // Every device works all the time.
  const double speed = best.total(problem.device_count());
  const double low = problem.settings().micros * sums.work.back() / speed;
  if (!fine) {
    DeviceProgram program(problem, sums, best);
    return least_feasible(low, 1e-4, [&](double limit) { return program.feasible(limit); });
  }
  const bool tracked = steps * devices / 4 <= kMostTrackedSteps;
  StageProgram program(problem, sums, best, tracked);
  return least_feasible(low, tracked ? 1e-9 : 1e-4,
                        [&](double limit) { return program.feasible(limit); });
}

}  // namespace tenuto
