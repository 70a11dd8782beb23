#include "adapt/layout/baseline.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapt/layout/device_order.h"
#include "adapt/layout/frugal.h"
#include "adapt/layout/program.h"
#include "adapt/layout/rule_layouts.h"
#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

const PlannerCard& card_of(Planner planner) {
  const std::vector<PlannerCard>& cards = planner_cards();
  const auto found = std::find_if(cards.begin(), cards.end(),
                                  [&](const PlannerCard& card) { return card.planner == planner; });
  CHECK(found != cards.end(), "every planner has a card");
  return *found;
}

// A layout with its schedule, and what it lacks.
struct Attempt {
  PricedLayout priced;
  MemoryShortage shortage;

  bool fits() const { return shortage.stage < 0; }
  // A layout that fits is better, then the shorter step, or the smaller shortage.
  bool is_better_than(const Attempt& other) const {
    if (fits() != other.fits()) return fits();
    return fits() ? priced.schedule.makespan < other.priced.schedule.makespan
                  : shortage.missing < other.shortage.missing;
  }
};

// The layout, run by a policy.
Attempt attempt(const LayoutProblem& problem, Layout layout, BlockPolicy policy) {
  Attempt result{{std::move(layout), {}, {}}, {}};
  PricedLayout& priced = result.priced;
  priced.loads = row_split_loads(problem, priced.layout);
  priced.schedule = schedule_blocks(priced.loads, policy);
  result.shortage = memory_shortage(problem, priced.layout, priced.schedule.in_flight);
  return result;
}

Result<PricedLayout> result_of(const LayoutProblem& problem, Planner planner, Attempt attempt) {
  if (attempt.fits()) return std::move(attempt.priced);
  return Error{Code::Infeasible, Reach::Job,
               cat("no layout of planner ", card_of(planner).name, " fits into memory: ",
                   shortage_text(problem, attempt.priced.layout, attempt.shortage))};
}

Attempt virtual_workers(const LayoutProblem& problem) {
  Attempt best = attempt(problem, one_stage_layout(problem), BlockPolicy::OneForwardOneBackward);
  const DeviceOrder order = speed_order(problem);
  for (int32_t count = problem.device_count() - 1; count >= 1; --count) {
    std::optional<Layout> layout = virtual_worker_layout(problem, order, count);
    if (!layout) continue;
    Attempt other = attempt(problem, std::move(*layout), BlockPolicy::OneForwardOneBackward);
    if (other.is_better_than(best)) best = std::move(other);
  }
  return best;
}

Attempt exposed_reduction(const LayoutProblem& problem) {
  std::optional<Layout> layout = exposed_reduction_layout(problem, true);
  // When nothing fits, the sentence is about the layout that would be best.
  if (!layout) layout = exposed_reduction_layout(problem, false);
  return attempt(problem, std::move(*layout), BlockPolicy::OneForwardOneBackward);
}

// An order of devices and how many of them a stage's devices are counted in: one at a time, or in
// groups when the program would take too long.
struct UnitChoice {
  DeviceOrder order;
  int32_t unit = 1;
};

UnitChoice in_units(const LayoutProblem& problem, DeviceOrder order) {
  constexpr int32_t kSingleDevices = 64;  // at most; more are counted in groups
  constexpr int32_t kMostUnits = 32;      // groups
  constexpr double kMostSteps = 2e10;     // of the program: some seconds
  const auto devices = static_cast<int32_t>(order.size());
  const auto steps = [&](double units) {
    return problem.layer_count() * std::min<double>(problem.layer_count(), units) * units * units *
           units;
  };
  int32_t unit = devices <= kSingleDevices ? 1 : (devices + kMostUnits - 1) / kMostUnits;
  while (unit < devices && steps(devices / unit) > kMostSteps) unit *= 2;
  unit = std::min(unit, devices);
  // The devices that do not fill a unit are idle.
  order.resize(order.size() / at(unit) * at(unit));
  return {std::move(order), unit};
}

}  // namespace

Result<PricedLayout> least_bottleneck_layout(const LayoutProblem& problem, DeviceOrder order) {
  const UnitChoice choice = in_units(problem, std::move(order));
  const auto units = static_cast<int32_t>(choice.order.size()) / choice.unit;
  const UnitOrder unit_order(problem, choice.order, choice.unit, all_counts(units));
  std::optional<PricedLayout> best;
  for (std::optional<BottleneckLayout>& found : least_bottlenecks(problem, unit_order)) {
    if (!found) continue;
    const LayoutLoads loads = row_split_loads(problem, found->layout);
    // A schedule can only be as short as this.
    if (best && least_makespan(loads) >= best->schedule.makespan) continue;
    BlockEffort effort;
    effort.most_in_flight = most_in_flight(problem, found->layout);
    std::optional<BlockSchedule> schedule = best_schedule(loads, effort);
    if (!schedule || (best && schedule->makespan >= best->schedule.makespan)) continue;
    best = PricedLayout{std::move(found->layout), loads, std::move(*schedule)};
  }
  if (best) return std::move(*best);
  // Nothing fits, so one stage does not either. Long pipelines may lack less.
  Attempt nearest = attempt(problem, {{0, problem.layer_count(), unit_order.workers(0, units)}},
                            BlockPolicy::OneForwardOneBackward);
  for (Layout pipeline : {even_layout(problem), balanced_layout(problem)}) {
    Attempt other = attempt(problem, std::move(pipeline), BlockPolicy::OneForwardOneBackward);
    if (!other.fits() && other.is_better_than(nearest)) nearest = std::move(other);
  }
  return result_of(problem, Planner::MinCut, std::move(nearest));
}

namespace {

// By a rule that makes one layout, or tries a few.
Attempt by_rule(const LayoutProblem& problem, Planner planner) {
  const auto one_f_one_b = BlockPolicy::OneForwardOneBackward;
  switch (planner) {
    case Planner::Dapple:
      return exposed_reduction(problem);
    case Planner::PipeDream:
      return attempt(problem, flat_rate_layout(problem), one_f_one_b);
    case Planner::Gpipe:
      return attempt(problem, balanced_layout(problem), BlockPolicy::ForwardsFirst);
    case Planner::OneFOneB:
      return attempt(problem, even_layout(problem), one_f_one_b);
    case Planner::HetPipe:
      return virtual_workers(problem);
    default:
      return attempt(problem, one_stage_layout(problem), one_f_one_b);
  }
}

}  // namespace

Result<PricedLayout> baseline_layout(const LayoutProblem& problem, Planner planner) {
  CHECK(planner != Planner::Tenuto, "search_layout() makes the layouts of this planner");
  if (planner == Planner::MinCut) {
    // Minimum cuts of many devices take too long; linkage_order() has the same aim.
    constexpr int32_t kMostMinCutDevices = 64;
    return least_bottleneck_layout(problem, problem.device_count() <= kMostMinCutDevices
                                                ? min_cut_order(problem)
                                                : linkage_order(problem));
  }
  return result_of(problem, planner, by_rule(problem, planner));
}

}  // namespace tenuto
