#include "adapt/layout/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapt/layout/device_order.h"
#include "adapt/layout/program.h"
#include "base/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The most units of an order, devices of a min-cut order, and units with which a stage may have any
// number of units.
constexpr int32_t kUnits = 512, kMinCutDevices = 64, kAnyCountUnits = 64;
// Up to so many devices a unit is a single device.
constexpr int32_t kSingleDevices = 128;
// Steps of a dynamic program for each block of simulation, and rates looked up.
constexpr double kStepsPerBlock = 40, kRatesPerBlock = 8;
// A sweep tries so many limits.
constexpr double kLeastSweep = 6, kMostSweep = 32;
constexpr double kLeastLimits = 8;         // that are tried in any case
constexpr double kMostProgramSteps = 2e8;  // of a published program that is still run
constexpr double kAnyLimit = 1e24;         // nanoseconds: no limit
constexpr double kSlack = 1.05;  // candidates this much slower than the best are still of interest

// An order of devices, cut into units.
struct NamedOrder {
  DeviceOrder order;
  int32_t unit = 1;
  std::string name;
};

// The lengths of the runs of an order without a rate below `slowest` between neighbours.
std::vector<int32_t> runs_of(const LayoutProblem& problem, const DeviceOrder& order,
                             double slowest) {
  std::vector<int32_t> runs = {1};
  for (size_t i = 1; i < order.size(); ++i) {
    if (problem.rate(order[i - 1], order[i]) >= slowest) {
      ++runs.back();
    } else {
      runs.push_back(1);
    }
  }
  return runs;
}

// Devices that stand side by side in an order and are better connected than with the next ones.
struct Node {
  int32_t size = 1;
  double slowest = 0;  // rate between neighbours in the order
};

// The nodes of a cluster: runs of an order, of which nearly all have the same length, between the
// fastest rates that have such runs. Size 1 when there are none.
Node node_of(const LayoutProblem& problem, const DeviceOrder& order) {
  std::vector<double> rates;
  for (size_t i = 1; i < order.size(); ++i) {
    rates.push_back(problem.rate(order[i - 1], order[i]));
  }
  std::sort(rates.begin(), rates.end(), std::greater<>());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  constexpr size_t kLevels = 8;  // more levels are not nodes
  if (rates.size() > kLevels) rates.resize(kLevels);
  for (const double rate : rates) {
    std::map<int32_t, int32_t> devices_of;  // by the length of their runs
    for (const int32_t run : runs_of(problem, order, rate)) devices_of[run] += run;
    for (const auto& [length, devices] : devices_of) {
      if (length > 1 && 10 * at(devices) >= 9 * order.size()) return {length, rate};
    }
  }
  return {};
}

// The order without the devices that do not fill a unit: those of runs that are no multiple of a
// node, and some at the end.
DeviceOrder whole_units(const LayoutProblem& problem, const DeviceOrder& order, const Node& node,
                        int32_t unit) {
  DeviceOrder whole;
  auto first = order.begin();
  for (const int32_t run : runs_of(problem, order, node.slowest)) {
    if (run % node.size == 0) whole.insert(whole.end(), first, first + run);
    first += run;
  }
  whole.resize(whole.size() / at(unit) * at(unit));
  return whole;
}

// How many devices make a unit: one where there are few; else a part of a node, or several nodes,
// so that there are at most kUnits.
int32_t unit_size(int32_t devices, int32_t node) {
  if (devices <= kSingleDevices) return 1;
  const int32_t least = (devices + kUnits - 1) / kUnits;
  for (int32_t unit = least; unit <= node; ++unit) {
    if (node % unit == 0) return unit;
  }
  return (least + node - 1) / node * node;
}

// Numbers of units with small steps: 1, 2, 3, 4, 6, 8, 12, 16, ...
std::vector<int32_t> some_counts(int32_t most) {
  std::vector<int32_t> counts;
  for (int32_t count = 1; count <= most; count *= 2) {
    counts.push_back(count);
    if (count >= 2 && count / 2 * 3 <= most) counts.push_back(count / 2 * 3);
  }
  if (counts.back() != most) counts.push_back(most);
  return counts;
}

// The same devices one after the other, as far as rates, speeds and memory tell.
bool alike(const LayoutProblem& problem, const DeviceOrder& one, const DeviceOrder& other) {
  if (one.size() != other.size()) return false;
  // Of a long order, neighbours and every so many others.
  const size_t step = 1 + one.size() / 128;
  for (size_t i = 0; i < one.size(); ++i) {
    if (problem.speed(one[i]) != problem.speed(other[i])) return false;
    if (problem.memory(one[i]) != problem.memory(other[i])) return false;
    for (size_t j = i + 1; j < one.size(); j += step) {
      if (problem.rate(one[i], one[j]) != problem.rate(other[i], other[j])) return false;
    }
  }
  return true;
}

class Orders {
 public:
  explicit Orders(const LayoutProblem& problem) : problem_(problem) {
    const DeviceOrder linked = linkage_order(problem);
    const int32_t devices = problem.device_count();
    const Node node = devices <= kSingleDevices ? Node{} : node_of(problem, linked);
    unit_ = unit_size(devices, node.size);
    take(unit_ == 1 ? linked : whole_units(problem, linked, node, unit_), "linkage order");
    // Stages of equal devices: the slowest device and the smallest memory count for a whole stage.
    take_sorted(
        linked, [&](int32_t device) { return -problem.memory(device); }, "memory order");
    take_sorted(
        linked, [&](int32_t device) { return -problem.speed(device); }, "speed order");
    if (devices <= kMinCutDevices) take(min_cut_order(problem), "min-cut order");
    if (unit_ == 1) take(natural_order(problem), "natural order");
  }
  std::vector<NamedOrder> all() { return std::move(all_); }

 private:
  template <class Value>
  void take_sorted(DeviceOrder order, const Value& value, const char* name) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t one, int32_t other) { return value(one) < value(other); });
    if (value(order.front()) == value(order.back())) return;
    order.resize(order.size() / at(unit_) * at(unit_));
    take(std::move(order), name);
  }
  // An order and its reverse.
  void take(DeviceOrder order, const std::string& name) {
    DeviceOrder reversed(order.rbegin(), order.rend());
    take_new(std::move(order), name);
    take_new(std::move(reversed), cat(name, " reversed"));
  }
  void take_new(DeviceOrder order, std::string name) {
    if (order.empty()) return;
    for (const NamedOrder& known : all_) {
      if (alike(problem_, known.order, order)) return;
    }
    all_.push_back({std::move(order), unit_, std::move(name)});
  }

  const LayoutProblem& problem_;
  int32_t unit_ = 1;
  std::vector<NamedOrder> all_;
};

// About how many steps a dynamic program over the units of an order takes.
double steps_of(const LayoutProblem& problem, int32_t units, const std::vector<int32_t>& counts) {
  double pairs = 0;  // of a stage and the one before it
  for (int32_t end = 1; end <= units; ++end) {
    for (const int32_t count : counts) {
      if (count > end) break;
      const auto before = std::upper_bound(counts.begin(), counts.end(), end - count);
      pairs += static_cast<double>(before - counts.begin()) + 1;
    }
  }
  return pairs * problem.layer_count();
}

// Makes the candidates of dynamic programs.
class Programs {
 public:
  Programs(const DraftTable& table, DraftPricer& pricer, double until)
      : table_(table), problem_(table.problem()), pricer_(pricer), until_(until) {
    for (int32_t device = 0; device < problem_.device_count(); ++device) {
      speeds_ += problem_.speed(device);
    }
  }

  void run() {
    const std::vector<NamedOrder> orders = Orders(problem_).all();
    const double devices = problem_.device_count();
    pricer_.charge(devices * devices * static_cast<double>(1 + orders.size()) / kRatesPerBlock);
    const size_t kinds = problem_.half_duplex() ? 2 : 4;
    const double sweeps = static_cast<double>(orders.size() * kinds);
    steps_ = steps_of(problem_, units_of(orders[0]), counts_for(orders[0]));
    const double left = std::max(0.0, until_ - pricer_.spent());
    sweep_ = std::clamp(left * kStepsPerBlock / std::max(1.0, steps_ * levels()) / sweeps,
                        kLeastSweep, kMostSweep);
    // Limits for everything, on all orders, say most.
    constexpr bool kFlags[][2] = {{true, true}, {false, true}, {true, false}, {false, false}};
    std::vector<std::optional<UnitOrder>> cuts(orders.size());
    for (size_t kind = 0; kind < kinds; ++kind) {
      for (size_t i = 0; i < orders.size(); ++i) {
        if (is_over()) return;
        const NamedOrder& order = orders[i];
        std::optional<UnitOrder>& cut = cuts[i];
        if (!cut) cut.emplace(problem_, order.order, order.unit, counts_for(order));
        pricer_.charge(devices * devices / kRatesPerBlock);
        sweep(*cut, {0, kFlags[kind][0], kFlags[kind][1]}, order.name);
        if (kind == 0) published(*cut, order.name);
      }
    }
  }

 private:
  bool is_over() const {
    return pricer_.is_over() || (tried_ >= kLeastLimits && pricer_.spent() >= until_);
  }

  static int32_t units_of(const NamedOrder& order) {
    return static_cast<int32_t>(order.order.size()) / order.unit;
  }

  std::vector<int32_t> counts_for(const NamedOrder& order) const {
    const int32_t units = units_of(order);
    const bool limited = problem_.memory_is_limited();  // much more work
    if (units <= (limited ? kAnyCountUnits / 2 : kAnyCountUnits)) return all_counts(units);
    return limited && units > 2 * kAnyCountUnits ? doubling_counts(units) : some_counts(units);
  }

  // With limited memory, a program counts stages, up to some share of those of the best draft; but
  // hardly any while there is much memory.
  double levels() const {
    if (!problem_.memory_is_limited()) return 1;
    const Draft& best = pricer_.best().draft;
    const auto stages = static_cast<int32_t>(best.stages.size());
    const std::vector<int32_t> most = table_.most_in_flight(best);
    bool scarce = false;
    for (int32_t n = 0; n < stages; ++n) {
      scarce = scarce || most[at(n)] < std::min(problem_.settings().micros, 2 * (stages - n));
    }
    return scarce ? std::min<double>(problem_.settings().micros, 1 + stages / 2.0) : 2;
  }

  void take(const Draft& draft, const std::string& how) {
    const double best = pricer_.best().makespan;
    pricer_.price(draft, best == kNotPriced ? best : best * kSlack, how);
  }

  // The least limit that a layout stays within.
  static double limit_of(const LayoutLoads& loads, const Threshold& threshold) {
    double limit = 0;
    for (const StageLoad& stage : loads.stages) {
      const double reduction = threshold.reductions ? stage.reduction / loads.micros : 0;
      limit = std::max(limit, stage.both() + reduction);
    }
    for (const LinkLoad& link : loads.links) {
      limit = std::max(limit,
                       threshold.both_ways ? link.both() : std::max(link.forward, link.backward));
    }
    return limit;
  }

  // Goes down from the limit within which every layout is that may be better than the best one.
  void sweep(const UnitOrder& units, Threshold threshold, const std::string& order) {
    const ThresholdProgram program(problem_, units);
    // No layout stays below the time of perfectly shared work.
    const Layers whole{0, problem_.layer_count()};
    const double least = (problem_.forward(whole) + problem_.backward(whole)) / speeds_;
    const double best = pricer_.best().makespan;
    threshold.limit = best == kNotPriced ? kAnyLimit : best / problem_.settings().micros;
    double ratio = 0;
    const std::string how = cat("threshold program, ", order);
    for (double tried = 0; tried < sweep_ && !is_over(); ++tried, ++tried_) {
      const std::optional<Layout> layout = program.least_latency(threshold);
      pricer_.charge(steps_ * levels() / kStepsPerBlock);
      if (!layout) return;
      const Draft draft = table_.draft(*layout);
      take(draft, how);
      const double most = pricer_.best().makespan / problem_.settings().micros;
      if (ratio == 0) ratio = std::pow(std::max(1.1, most / least), 1 / sweep_);
      threshold.limit =
          std::min({threshold.limit / ratio, most, limit_of(draft.loads, threshold) * (1 - 1e-9)});
    }
  }

  void published(const UnitOrder& units, const std::string& order) {
    const double stages = std::min(problem_.layer_count(), units.unit_count());
    const double steps = steps_ * problem_.layer_count() * stages / 4;
    if (steps > kMostProgramSteps || pricer_.spent() + steps / kStepsPerBlock > until_) return;
    for (const bool idle : {true, false}) {
      pricer_.charge(steps / kStepsPerBlock);
      for (const auto& found : least_bottlenecks(problem_, units, idle)) {
        if (found) take(table_.draft(found->layout), cat("least bottleneck, ", order));
      }
    }
  }

  const DraftTable& table_;
  const LayoutProblem& problem_;
  DraftPricer& pricer_;
  double until_ = 0;
  double speeds_ = 0;  // of all devices
  double steps_ = 1, sweep_ = 1;
  double tried_ = 0;  // limits
};

// About how many steps the rule of a baseline takes. All look at the rates between all devices; two
// are dynamic programs or searches over few groups of devices.
double steps_of(const LayoutProblem& problem, Planner planner) {
  constexpr double kMostGroups = 16, kMostCuts = 64;
  const double layers = problem.layer_count(), devices = problem.device_count();
  const double rates = 3 * devices * devices;  // a rate takes as long as three steps
  if (planner == Planner::PipeDream) return 2 * rates;
  if (planner == Planner::HetPipe) return 6 * rates;
  if (planner == Planner::Dapple) {
    return 3 * rates +
           std::pow(std::min(layers, kMostCuts) * std::min(devices, kMostGroups), 3) / 100;
  }
  if (planner == Planner::MinCut) {
    const double units = devices <= kMinCutDevices ? devices : kMinCutDevices / 2;
    return rates * (devices <= kMinCutDevices ? devices * devices : 6) +
           layers * std::min(layers, units) * std::pow(units, 3) / 4;
  }
  return rates;
}

}  // namespace

std::optional<PricedLayout> price_candidates(const DraftTable& table, DraftPricer& pricer,
                                             double until, Watch* watch) {
  std::optional<PricedLayout> best;
  for (const Planner planner :
       {Planner::DataParallel, Planner::Gpipe, Planner::OneFOneB, Planner::HetPipe,
        Planner::PipeDream, Planner::Dapple, Planner::MinCut}) {
    if (pricer.is_over() || is_over(watch)) return best;
    const double steps = steps_of(table.problem(), planner);
    if (planner == Planner::MinCut && steps > kMostProgramSteps) continue;
    pricer.charge(steps / kStepsPerBlock);
    begin_part(watch, "pricing layouts of other planners");
    Result<PricedLayout> made = baseline_layout(table.problem(), planner);
    if (!made.ok()) continue;
    PricedLayout layout = std::move(made).value();
    std::string how = "other planner";
    for (const PlannerCard& card : planner_cards()) {
      if (card.planner == planner) how = card.name;
    }
    pricer.price(table.draft(layout.layout), kNotPriced, how);
    if (best && best->schedule.makespan <= layout.schedule.makespan) continue;
    best = std::move(layout);
  }
  if (is_over(watch)) return best;
  begin_part(watch, "pricing layouts of dynamic programs");
  Programs(table, pricer, until).run();
  return best;
}

}  // namespace tenuto
