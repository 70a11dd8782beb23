// All planners against the best of all layouts of tiny random problems.
#include <cstdio>
#include <vector>

#include "adapt/layout/exact_layout.h"
#include "adapt/layout/random_chain.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "bench/planner_tables.h"

namespace tenuto {

namespace {

// Ratios to the optimum.
struct TinyRatios {
  std::vector<Ratios> rivals = std::vector<Ratios>(tenuto::rivals().size());
  Ratios ours, bound;
  uint64_t worst_seed = 0;             // of ours
  double search_ms = 0, exact_ms = 0;  // in all
};

void measure(uint64_t seed, bool half_duplex, TinyRatios& ratios) {
  const PlannedChain chain = random_chain(seed, half_duplex);
  const LayoutProblem problem(chain.model, chain.cluster, chain.settings);
  const Duration start = monotonic_clock().now();
  const double optimum = exact_layout(chain.model, chain.cluster, chain.settings).makespan;
  const Duration middle = monotonic_clock().now();
  const LayoutSearch found = search(problem);
  ratios.exact_ms += to_milliseconds(middle - start);
  ratios.search_ms += to_milliseconds(monotonic_clock().now() - middle);
  const auto ratio_of = [&](double step) {
    CHECK(step >= optimum * (1 - kRounding), cat("a step below the best of all, seed ", seed));
    return step / optimum;
  };
  const double ours = ratio_of(found.best.schedule.makespan);
  if (seed == 0 || ours > ratios.ours.most()) ratios.worst_seed = seed;
  ratios.ours.add(ours);
  for (size_t i = 0; i < rivals().size(); ++i) {
    ratios.rivals[i].add(ratio_of(rivals()[i].plan(problem).schedule.makespan));
  }
  const double bound = found.lower_bound / optimum;
  CHECK(bound <= 1 + kRounding, cat("a lower bound above the best of all, seed ", seed));
  ratios.bound.add(bound);
}

void print_row(const std::string& name, const Ratios& ratios) {
  std::printf("%-16s %7.4f %8.4f %8lld\n", name.c_str(), ratios.mean(), ratios.most(),
              static_cast<long long>(ratios.ones()));
}

}  // namespace

void print_tiny(const PlannerSettings& settings, bool half_duplex) {
  const int32_t count = settings.count > 0 ? settings.count : half_duplex ? 800 : 3000;
  TinyRatios ratios;
  for (int32_t i = 0; i < count; ++i) measure(static_cast<uint64_t>(i), half_duplex, ratios);
  std::printf(
      "%d random problems with %s-duplex links: step / best step of all layouts and schedules\n"
      "%-16s %7s %8s %8s\n",
      count, half_duplex ? "half" : "full", "planner", "mean", "max", "optimal");
  for (size_t i = 0; i < rivals().size(); ++i) print_row(rivals()[i].name, ratios.rivals[i]);
  print_row(name_of(Planner::Tenuto), ratios.ours);
  print_row("lower bound", ratios.bound);
  if (ratios.ours.ones() < ratios.ours.count()) {
    std::printf("the worst of %s's has the seed %llu\n", name_of(Planner::Tenuto).c_str(),
                static_cast<unsigned long long>(ratios.worst_seed));
  }
  std::printf("a search takes %.2f ms, the proof of the best %.2f ms\n\n", ratios.search_ms / count,
              ratios.exact_ms / count);
}

}  // namespace tenuto
