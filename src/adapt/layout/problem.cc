#include "adapt/layout/problem.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "world/port_sides.h"

namespace tenuto {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double bytes_per_nanosecond(const Link& link) {
  return link.bytes_per_second == 0 ? kUnlimited : link.bytes_per_second / 1e9;
}

// The number of each live worker's class, from 0; classes without a live worker have none.
std::vector<size_t> classes_of(const Cluster& cluster, const std::vector<WorkerId>& workers) {
  std::vector<size_t> classes;
  for (const WorkerId worker : workers) {
    classes.push_back(cluster.place.empty()
                          ? 0
                          : static_cast<size_t>(cluster.place[static_cast<size_t>(worker.value)]));
  }
  return classes;
}

double slower(const Cluster& cluster, WorkerId one, WorkerId other) {
  return std::min(bytes_per_nanosecond(cluster.link(one, other)),
                  bytes_per_nanosecond(cluster.link(other, one)));
}

// With more classes than this, their rates would be a large table.
constexpr size_t kMostClasses = 4'096;

// The classes of the devices, by place and by ports; and the place of each of these classes.
struct Classes {
  std::vector<size_t> of, place;
};

Classes classes_with_ports(const Cluster& cluster, const std::vector<WorkerId>& workers,
                           const std::vector<size_t>& places) {
  std::vector<std::vector<size_t>> ports(cluster.workers.size());  // of each worker
  for (size_t p = 0; p < cluster.ports.size(); ++p) {
    for (const WorkerId device : cluster.ports[p].devices) {
      ports[static_cast<size_t>(device.value)].push_back(p);
    }
  }
  Classes classes;
  std::map<std::pair<size_t, std::vector<size_t>>, size_t> numbers;
  for (size_t i = 0; i < workers.size(); ++i) {
    const std::pair kind(places[i], std::move(ports[static_cast<size_t>(workers[i].value)]));
    const auto [found, fresh] = numbers.try_emplace(kind, numbers.size());
    if (fresh) classes.place.push_back(places[i]);
    classes.of.push_back(found->second);
  }
  return classes;
}

// Of the slower direction between two devices, in bytes per nanosecond.
double rate_of_ports(const PortSides& ports, WorkerId one, WorkerId other) {
  return std::min(bytes_per_nanosecond({{}, ports.rate(one, other)}),
                  bytes_per_nanosecond({{}, ports.rate(other, one)}));
}

}  // namespace

LayoutProblem::LayoutProblem(const Model& model, const Cluster& cluster,
                             const LayoutSettings& settings)
    : settings_(settings),
      half_duplex_(cluster.half_duplex),
      step_(static_cast<double>(model.step.count())),
      pass_(static_cast<double>(model.op.count())) {
  CHECK(!model.layers.empty() && settings.micros >= 1, "a layout needs layers and micro-batches");
  CHECK(settings.optimizer.empty() || settings.optimizer.size() == model.layers.size(),
        "the optimizer's bytes are of each layer");
  forward_ = backward_ = update_ = parameters_ = stash_ = state_ = {0};
  cut_ = {0};
  for (const Layer& layer : model.layers) {
    forward_.push_back(forward_.back() + static_cast<double>(layer.forward.count()));
    backward_.push_back(
        backward_.back() +
        static_cast<double>((layer.backward_input + layer.backward_weight).count()));
    update_.push_back(update_.back() + static_cast<double>(layer.update.count()));
    const auto parameters = static_cast<double>(layer.parameters.count);
    parameters_.push_back(parameters_.back() + parameters);
    const std::optional<Bytes> kept =
        settings.optimizer.empty() ? std::nullopt : settings.optimizer[parameters_.size() - 2];
    state_.push_back(state_.back() + (kept ? parameters + static_cast<double>(kept->count)
                                           : settings.state_share * parameters));
    stash_.push_back(stash_.back() + static_cast<double>(layer.stash.count));
    cut_.push_back(static_cast<double>(layer.activation.count));
  }
  cut_.back() = 0;
  has_constants_ = pass_ > 0 || step_ > 0 || layers_have_updates();
  devices_.assign(cluster.workers.size(), -1);
  for (size_t w = 0; w < cluster.workers.size(); ++w) {
    const Worker& worker = cluster.workers[w];
    if (!worker.alive) continue;
    devices_[w] = device_count();
    workers_.push_back(WorkerId{static_cast<int32_t>(w)});
    speed_.push_back(worker.speed);
    memory_.push_back(worker.memory.count == 0 ? kUnlimited
                                               : static_cast<double>(worker.memory.count));
    memory_is_limited_ = memory_is_limited_ || worker.memory.count != 0;
  }
  CHECK(!workers_.empty(), "a layout needs a live worker");
  take_classes(cluster);
  take_exceptions(cluster);
}

// Sets the classes and the rates between them. Two devices of a class are of one place and have the
// same ports, so two pairs of the same classes have the same ports on their way.
void LayoutProblem::take_classes(const Cluster& cluster) {
  class_ = classes_of(cluster, workers_);
  class_count_ = *std::max_element(class_.begin(), class_.end()) + 1;
  std::vector<size_t> place(class_count_);
  std::iota(place.begin(), place.end(), size_t{0});
  std::vector<WorkerId> first, second;  // of each class, as far as it has them
  if (!cluster.ports.empty()) {
    Classes classes = classes_with_ports(cluster, workers_, class_);
    if (classes.place.size() <= kMostClasses) {
      class_ = std::move(classes.of);
      place = std::move(classes.place);
      class_count_ = place.size();
      first.resize(class_count_);
      second.resize(class_count_);
      for (size_t i = workers_.size(); i-- > 0;) {
        second[class_[i]] = std::exchange(first[class_[i]], workers_[i]);
      }
    }
  }
  const PortSides ports(cluster);
  rates_.assign(class_count_ * class_count_, kUnlimited);
  for (size_t row = 0; row < class_count_; ++row) {
    for (size_t column = 0; column < class_count_; ++column) {
      double& rate = rates_[row * class_count_ + column];
      if (!cluster.between.empty()) {
        rate = std::min(bytes_per_nanosecond(cluster.between[place[row]][place[column]]),
                        bytes_per_nanosecond(cluster.between[place[column]][place[row]]));
      }
      if (first.empty()) continue;
      const WorkerId other = row == column ? second[row] : first[column];
      if (other.value >= 0) rate = std::min(rate, rate_of_ports(ports, first[row], other));
    }
  }
}

void LayoutProblem::take_exceptions(const Cluster& cluster) {
  // Each pair once, by the lower and the higher device.
  std::map<std::pair<int32_t, int32_t>, double> pairs;
  for (const auto& [pair, link] : cluster.exceptions) {
    const int32_t one = devices_[static_cast<size_t>(pair.first.value)],
                  other = devices_[static_cast<size_t>(pair.second.value)];
    if (one < 0 || other < 0 || one == other) continue;
    pairs[std::minmax(one, other)] = slower(cluster, pair.first, pair.second);
  }
  if (pairs.empty()) return;
  std::vector<std::vector<RateException>> by_device(workers_.size());
  for (const auto& [pair, rate] : pairs) {
    by_device[static_cast<size_t>(pair.first)].push_back({pair.second, rate});
    by_device[static_cast<size_t>(pair.second)].push_back({pair.first, rate});
  }
  first_exception_.push_back(0);
  for (std::vector<RateException>& of : by_device) {
    std::sort(of.begin(), of.end(), [](const RateException& one, const RateException& other) {
      return one.other < other.other;
    });
    exceptions_.insert(exceptions_.end(), of.begin(), of.end());
    first_exception_.push_back(exceptions_.size());
  }
}

double LayoutProblem::rate_with_exceptions(int32_t one, int32_t other, double rate) const {
  const std::span<const RateException> of = exceptions(one);
  const auto found = std::lower_bound(
      of.begin(), of.end(), other,
      [](const RateException& exception, int32_t device) { return exception.other < device; });
  return found == of.end() || found->other != other ? rate : found->rate;
}

void LayoutProblem::rates_from(int32_t device, std::vector<double>& row) const {
  row.resize(class_.size());
  const double* const rates = &rates_[class_of(device) * class_count_];
  if (class_count_ == 1) {
    std::fill(row.begin(), row.end(), rates[0]);
  } else {
    for (size_t other = 0; other < row.size(); ++other) row[other] = rates[class_[other]];
  }
  for (const RateException& exception : exceptions(device)) {
    row[static_cast<size_t>(exception.other)] = exception.rate;
  }
}

namespace {

// The devices of a stage.
std::vector<int32_t> devices_of(const LayoutProblem& problem, const Stage& stage) {
  std::vector<int32_t> devices;
  for (const WorkerId holder : stage.holders) devices.push_back(problem.device(holder));
  return devices;
}

// Between so many pairs of devices, each rate is looked up.
constexpr size_t kFewPairs = 1024;

// Some devices, counted by class.
struct ClassCounts {
  ClassCounts(const LayoutProblem& problem, const std::vector<int32_t>& devices)
      : count(problem.class_count(), 0), has(static_cast<size_t>(problem.device_count()), false) {
    for (const int32_t device : devices) {
      const size_t its = problem.class_of(device);
      if (count[its]++ == 0) classes.push_back(its);
      has[static_cast<size_t>(device)] = true;
    }
  }

  std::vector<int64_t> count;   // [class]
  std::vector<size_t> classes;  // those with devices
  std::vector<bool> has;        // [device]
};

// The exceptions between the devices of a set and those of another one.
struct SlowestException {
  double rate = kUnlimited;                     // the slowest
  std::unordered_map<size_t, int64_t> between;  // how many between two classes, each direction

  static size_t key(const LayoutProblem& problem, size_t one, size_t other) {
    return one * problem.class_count() + other;
  }
  SlowestException(const LayoutProblem& problem, const std::vector<int32_t>& from,
                   const std::vector<bool>& to) {
    for (const int32_t one : from) {
      for (const RateException& exception : problem.exceptions(one)) {
        if (!to[static_cast<size_t>(exception.other)]) continue;
        rate = std::min(rate, exception.rate);
        ++between[key(problem, problem.class_of(one), problem.class_of(exception.other))];
      }
    }
  }
  int64_t count(const LayoutProblem& problem, size_t one, size_t other) const {
    const auto found = between.find(key(problem, one, other));
    return found == between.end() ? 0 : found->second;
  }
};

}  // namespace

double slowest_inside(const LayoutProblem& problem, const std::vector<int32_t>& devices) {
  double slowest = kUnlimited;
  if (devices.size() * devices.size() <= 2 * kFewPairs) {
    for (size_t i = 0; i < devices.size(); ++i) {
      for (size_t j = i + 1; j < devices.size(); ++j) {
        slowest = std::min(slowest, problem.rate(devices[i], devices[j]));
      }
    }
    return slowest;
  }
  const ClassCounts set(problem, devices);
  const SlowestException exceptions(problem, devices, set.has);
  slowest = exceptions.rate;
  for (size_t i = 0; i < set.classes.size(); ++i) {
    for (size_t j = i; j < set.classes.size(); ++j) {
      const size_t one = set.classes[i], other = set.classes[j];
      const double rate = problem.class_rate(one, other);
      if (rate >= slowest) continue;
      // Of one class, each pair counts in both directions, as its exceptions do.
      const int64_t pairs = set.count[one] * (set.count[other] - (i == j ? 1 : 0));
      if (pairs > exceptions.count(problem, one, other)) slowest = rate;
    }
  }
  return slowest;
}

double slowest_between(const LayoutProblem& problem, const std::vector<int32_t>& from,
                       const std::vector<int32_t>& to) {
  double slowest = kUnlimited;
  if (from.size() * to.size() <= kFewPairs) {
    for (const int32_t one : from) {
      for (const int32_t other : to) slowest = std::min(slowest, problem.rate(one, other));
    }
    return slowest;
  }
  const ClassCounts first(problem, from), second(problem, to);
  const SlowestException exceptions(problem, from, second.has);
  slowest = exceptions.rate;
  for (const size_t one : first.classes) {
    for (const size_t other : second.classes) {
      const double rate = problem.class_rate(one, other);
      if (rate >= slowest) continue;
      const int64_t pairs = first.count[one] * second.count[other];
      if (pairs > exceptions.count(problem, one, other)) slowest = rate;
    }
  }
  return slowest;
}

LayoutLoads row_split_loads(const LayoutProblem& problem, const Layout& layout) {
  LayoutLoads loads;
  loads.micros = problem.settings().micros;
  loads.half_duplex = problem.half_duplex();
  std::vector<int32_t> before;
  for (const Stage& stage : layout) {
    const std::vector<int32_t> devices = devices_of(problem, stage);
    const double replicas = static_cast<double>(devices.size());
    double speed = kUnlimited;
    for (const int32_t device : devices) speed = std::min(speed, problem.speed(device));
    const Layers layers{stage.layer_first, stage.layer_end};
    if (!before.empty()) {
      const double pairs = static_cast<double>(before.size()) * replicas;
      const double time =
          problem.cut(stage.layer_first) / (pairs * slowest_between(problem, before, devices));
      loads.links.push_back({time, time});
    }
    loads.stages.push_back(split_load(
        problem, layers, {replicas, speed, slowest_inside(problem, devices)}, stage.recompute));
    before = devices;
  }
  return loads;
}

double bottleneck(const LayoutLoads& loads) {
  double most = 0;
  for (const StageLoad& stage : loads.stages) {
    most = std::max(most, loads.micros * stage.both() + stage.reduction);
  }
  for (const LinkLoad& link : loads.links) most = std::max(most, loads.micros * link.both());
  return most;
}

double least_makespan(const LayoutLoads& loads) {
  const size_t count = loads.stages.size();
  const double micros = loads.micros;
  double least = 0;
  double head = 0;  // the first micro-batch, up to the forward of stage n
  // The last micro-batch, from the end of a backward of stage n: to the end of the step.
  std::vector<double> back(count);
  // From the start of a forward of stage n to the end of its backward; from there to the end of the
  // last stage's backward.
  std::vector<double> trip(count), down(count);
  for (size_t n = 0; n < count; ++n) {
    const double reduction = loads.stages[n].reduction;
    back[n] = n == 0 ? reduction
                     : std::max(reduction, loads.links[n - 1].backward +
                                               loads.stages[n - 1].backward + back[n - 1]);
  }
  for (size_t n = count; n-- > 0;) {
    const StageLoad& stage = loads.stages[n];
    const bool last = n + 1 == count;
    trip[n] = stage.both() + (last ? 0 : loads.links[n].both() + trip[n + 1]);
    down[n] = stage.forward + (last ? stage.backward : loads.links[n].forward + down[n + 1]);
  }
  for (size_t n = 0; n < count; ++n) {
    const StageLoad& stage = loads.stages[n];
    // A stage does one thing at a time: all its work; or all its forwards, after which the last
    // micro-batch goes on; or all its backwards, after the first micro-batch has come back.
    least = std::max({least, head + micros * stage.both() + back[n],
                      head + (micros - 1) * stage.forward + down[n] + back[count - 1],
                      head + trip[n] + (micros - 1) * stage.backward + back[n]});
    if (n + 1 == count) break;
    // So does a link, in each direction.
    const LinkLoad& link = loads.links[n];
    const double start = head + stage.forward;    // of the first transfer
    const double end = stage.backward + back[n];  // after the last transfer back
    least = std::max({least, start + micros * link.forward + down[n + 1] + back[count - 1],
                      start + link.forward + trip[n + 1] + micros * link.backward + end});
    if (loads.half_duplex) least = std::max(least, start + micros * link.both() + end);
    head = start + link.forward;
  }
  return least;
}

double stage_memory(const LayoutProblem& problem, const Stage& stage, int32_t in_flight) {
  return held_bytes(problem, stage).bytes(in_flight, static_cast<double>(stage.holders.size()));
}

double least_memory(const LayoutProblem& problem, const Stage& stage) {
  double least = kUnlimited;
  for (const WorkerId holder : stage.holders) {
    least = std::min(least, problem.memory(problem.device(holder)));
  }
  return least;
}

std::vector<int32_t> most_in_flight(const LayoutProblem& problem, const Layout& layout) {
  std::vector<int32_t> most;
  for (size_t n = 0; n < layout.size() && problem.memory_is_limited(); ++n) {
    most.push_back(held_bytes(problem, layout[n])
                       .most_in_flight(least_memory(problem, layout[n]), problem.settings().micros,
                                       static_cast<double>(layout[n].holders.size())));
  }
  return most;
}

std::vector<HeldBytes> held_by_workers(const LayoutProblem& problem, const Layout& layout,
                                       size_t workers) {
  std::vector<HeldBytes> all(workers);
  for (const Stage& stage : layout) {
    const HeldBytes held = held_bytes(problem, stage);
    for (const WorkerId holder : stage.holders) {
      HeldBytes& of = all[static_cast<size_t>(holder.value)];
      of.state += held.state;
      of.once = std::max(of.once, held.once);
      of.each = std::max(of.each, held.each);
    }
  }
  return all;
}

MemoryShortage memory_shortage(const LayoutProblem& problem, const Layout& layout,
                               const std::vector<int32_t>& in_flight) {
  for (size_t n = 0; n < layout.size() && problem.memory_is_limited(); ++n) {
    const double need = stage_memory(problem, layout[n], in_flight[n]);
    for (const WorkerId holder : layout[n].holders) {
      const int32_t device = problem.device(holder);
      const double missing = need - problem.memory(device);
      if (missing > 0) return {static_cast<int32_t>(n), device, missing};
    }
  }
  return {};
}

MemoryShortage memory_shortage(const LayoutProblem& problem, const Layout& layout) {
  std::vector<int32_t> in_flight;
  for (auto behind = static_cast<int32_t>(layout.size()); behind-- > 0;) {
    in_flight.push_back(least_in_flight(problem.settings(), behind));
  }
  return memory_shortage(problem, layout, in_flight);
}

}  // namespace tenuto
