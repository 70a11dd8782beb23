#include "bench/planner_tables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapt/layout/device_order.h"
#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

Rival rival_of(Planner planner) {
  return {name_of(planner), [planner](const LayoutProblem& problem) {
            Result<PricedLayout> made = baseline_layout(problem, planner);
            CHECK(made.ok(), "memory is unlimited");
            return std::move(made).value();
          }};
}

// Planner::MinCut with the devices in the order of their numbers.
PricedLayout plan_natural(const LayoutProblem& problem) {
  Result<PricedLayout> made = least_bottleneck_layout(problem, natural_order(problem));
  CHECK(made.ok(), "memory is unlimited");
  return std::move(made).value();
}

}  // namespace

std::string name_of(Planner planner) {
  for (const PlannerCard& card : planner_cards()) {
    if (card.planner == planner) return card.name;
  }
  CHECK(false, "every planner has a card");
}

const std::vector<Rival>& rivals() {
  static const std::vector<Rival> all = {rival_of(Planner::DataParallel),
                                         rival_of(Planner::Gpipe),
                                         rival_of(Planner::OneFOneB),
                                         rival_of(Planner::PipeDream),
                                         rival_of(Planner::Dapple),
                                         rival_of(Planner::HetPipe),
                                         {name_of(Planner::MinCut) + "-natural", plan_natural},
                                         rival_of(Planner::MinCut)};
  return all;
}

LayoutSearch search(const LayoutProblem& problem, const LayoutEffort& effort) {
  Result<LayoutSearch> found = search_layout(problem, effort);
  CHECK(found.ok(), "memory is unlimited");
  return std::move(found).value();
}

double Ratios::mean() const {
  double sum = 0;
  for (const double ratio : ratios_) sum += ratio;
  return sum / static_cast<double>(ratios_.size());
}

double Ratios::geometric_mean() const {
  double sum = 0;
  for (const double ratio : ratios_) sum += std::log(ratio);
  return std::exp(sum / static_cast<double>(ratios_.size()));
}

double Ratios::least() const { return *std::min_element(ratios_.begin(), ratios_.end()); }

double Ratios::most() const { return *std::max_element(ratios_.begin(), ratios_.end()); }

int64_t Ratios::ones() const {
  return std::count_if(ratios_.begin(), ratios_.end(),
                       [](double ratio) { return std::abs(ratio - 1) <= kRounding; });
}

std::string replicas_of(const Layout& layout) {
  std::string text;
  for (const Stage& stage : layout) {
    text += cat(text.empty() ? "" : "-", stage.holders.size());
  }
  return text;
}

}  // namespace tenuto
