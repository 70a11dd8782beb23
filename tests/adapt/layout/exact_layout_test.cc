// The search for a layout compared with the best of all layouts, on random tiny problems; and the
// search for that best layout on problems whose answer is known.
#include "adapt/layout/exact_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "adapt/layout/baseline.h"
#include "adapt/layout/random_chain.h"
#include "adapt/layout/search.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Sums of the same numbers in another order differ by less.
constexpr double kRounding = 1e-9;
constexpr double kMillisecond = 1e6;

// Two equal layers: forward and backward take a millisecond each; two devices.
PlannedChain two_layers(Bytes activation, Bytes parameters) {
  PlannedChain chain;
  Layer layer;
  layer.forward = layer.backward_input = std::chrono::milliseconds(1);
  layer.activation = activation;
  layer.parameters = parameters;
  chain.model.layers = {layer, layer};
  chain.cluster = uniform_cluster(2, {{}, 1e9});
  chain.settings.micros = 4;
  return chain;
}

ExactLayout best_of(const PlannedChain& chain) {
  return exact_layout(chain.model, chain.cluster, chain.settings);
}

// Transfers and reductions that take far too long to be of use.
constexpr Bytes kNothing{0}, kHuge{1'000'000'000'000};

TEST(ExactLayout, ReplicatesWhenReductionsAreFree) {
  const ExactLayout best = best_of(two_layers(kHuge, kNothing));
  EXPECT_DOUBLE_EQ(best.makespan, 8 * kMillisecond);
  ASSERT_EQ(best.layout.size(), 1U);
  EXPECT_EQ(best.layout[0].holders.size(), 2U);
  // One stage: either device, or both. Two stages: one device each.
  EXPECT_EQ(best.layouts, 5);
}

TEST(ExactLayout, MakesAPipelineWhenTransfersAreFree) {
  const ExactLayout best = best_of(two_layers(kNothing, kHuge));
  // Four micro-batches, and the time until the second stage has its first one.
  EXPECT_DOUBLE_EQ(best.makespan, (4 + 1) * 2 * kMillisecond);
  EXPECT_EQ(best.layout.size(), 2U);
}

TEST(ExactLayout, LeavesSlowDevicesIdleAndDeadOnesOut) {
  PlannedChain chain = two_layers(kHuge, kHuge);
  chain.cluster = uniform_cluster(5, {{}, 1e9});
  chain.cluster.workers[2].speed = 2;
  chain.cluster.workers[3].speed = 4;
  chain.cluster.workers[3].alive = false;
  const ExactLayout best = best_of(chain);
  EXPECT_DOUBLE_EQ(best.makespan, 4 * 4 / 2.0 * kMillisecond);
  ASSERT_EQ(best.layout.size(), 1U);
  EXPECT_EQ(best.layout[0].holders, std::vector<WorkerId>{WorkerId{2}});
}

TEST(ExactLayout, PricesRowsSplitOverReplicas) {
  // The last gradient is ready after 8 ms. In the slower direction, the parameters of both layers
  // take 2 ms; a ring of two sends each of them once. Then comes the update.
  PlannedChain chain = two_layers(kHuge, Bytes{500'000});
  chain.model.step = std::chrono::milliseconds(2);
  chain.cluster.exceptions[{WorkerId{1}, WorkerId{0}}] = {{}, 0.5e9};
  chain.cluster.exceptions[{WorkerId{0}, WorkerId{1}}] = {{}, 1e9};
  EXPECT_DOUBLE_EQ(best_of(chain).makespan, (8 + 2 + 2) * kMillisecond);
}

TEST(ExactLayout, LeavesOutOnlyWhatIsNotBetter) {
  for (const bool half_duplex : {false, true}) {
    for (uint64_t seed = 0; seed < (kSanitized ? 5 : 40); ++seed) {
      const PlannedChain chain = random_chain(seed, half_duplex);
      const ExactLayout pruned = best_of(chain),
                        all = exhaustive_layout(chain.model, chain.cluster, chain.settings);
      EXPECT_EQ(pruned.makespan, all.makespan)
          << "half duplex " << half_duplex << ", seed " << seed;
      EXPECT_EQ(all.scheduled, all.layouts);
      EXPECT_LT(pruned.scheduled, pruned.layouts);
    }
  }
}

// How far the search is above the best of all layouts.
struct Gaps {
  int count = 0, optimal = 0;
  double sum = 0, most = 0;

  void add(double ratio) {
    ++count;
    optimal += ratio <= 1 + kRounding;
    sum += ratio;
    most = std::max(most, ratio);
  }
};

// Compares the search, all baselines and the lower bound with the optimum of one problem.
void compare(uint64_t seed, bool half_duplex, Gaps& gaps) {
  const PlannedChain chain = random_chain(seed, half_duplex);
  const LayoutProblem problem(chain.model, chain.cluster, chain.settings);
  const double optimum = best_of(chain).makespan;
  const auto name = ::testing::Message() << "half duplex " << half_duplex << ", seed " << seed;
  const Result<LayoutSearch> found = search_layout(problem);
  ASSERT_TRUE(found.ok()) << name;
  const double makespan = found.value().best.schedule.makespan;
  EXPECT_GE(makespan, optimum * (1 - kRounding)) << name;
  EXPECT_LE(found.value().lower_bound, optimum * (1 + kRounding)) << name;
  gaps.add(makespan / optimum);
  for (const PlannerCard& card : planner_cards()) {
    if (card.planner == Planner::Tenuto) continue;
    const Result<PricedLayout> baseline = baseline_layout(problem, card.planner);
    ASSERT_TRUE(baseline.ok()) << name << ", " << card.name;
    EXPECT_GE(baseline.value().schedule.makespan, makespan * (1 - kRounding))
        << name << ", " << card.name;
  }
}

class NearTheBest : public ::testing::TestWithParam<bool> {};

TEST_P(NearTheBest, OfAllLayouts) {
  const bool half_duplex = GetParam();
  const uint64_t count = (half_duplex ? 50 : 150) / (kSanitized ? 5 : 1);
  Gaps gaps;
  for (uint64_t seed = 0; seed < count && !HasFatalFailure(); ++seed) {
    compare(seed, half_duplex, gaps);
  }
  std::printf("%d of %d optimal, on average %.3f times the optimum, at most %.3f\n", gaps.optimal,
              gaps.count, gaps.sum / gaps.count, gaps.most);
  EXPECT_LE(gaps.sum, 1.004 * gaps.count);
  EXPECT_LE(gaps.most, 1.12);
  EXPECT_GE(gaps.optimal, 0.9 * gaps.count);
}

INSTANTIATE_TEST_SUITE_P(Duplex, NearTheBest, ::testing::Bool(),
                         [](const auto& it) { return it.param ? "Half" : "Full"; });

}  // namespace
}  // namespace tenuto
