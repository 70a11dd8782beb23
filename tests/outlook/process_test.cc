// Troubles that are drawn: their moments, and that a seed repeats them.
#include "outlook/process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/longest_time.h"

namespace tenuto::outlook {
namespace {

constexpr int kDraws = 20'000;
constexpr Duration kWeek = std::chrono::hours(7 * 24);

double mean_of(const std::function<double()>& draw) {
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) sum += draw();
  return sum / kDraws;
}

std::vector<Trouble> of_kind(const std::vector<Trouble>& all, TroubleKind kind) {
  std::vector<Trouble> some;
  for (const Trouble& trouble : all) {
    if (trouble.kind == kind) some.push_back(trouble);
  }
  return some;
}

TEST(Process, MeansAreAsGiven) {
  Random random(1);
  EXPECT_NEAR(mean_of([&] { return draw_exponential(random, 5); }), 5, 0.15);
  EXPECT_NEAR(mean_of([&] { return draw_lognormal(random, {4, 1}); }), 4, 0.2);
  EXPECT_EQ(draw_lognormal(random, {0, 1}), 0);
  EXPECT_DOUBLE_EQ(draw_lognormal(random, {4, 0}), 4);
}

// The square of an exponential number is 2 mean^2 on average; the logarithm of a lognormal one
// deviates by sigma.
TEST(Process, DeviationsAreAsGiven) {
  Random random(2);
  const auto squared = [&] {
    const double value = draw_exponential(random, 3);
    return value * value;
  };
  EXPECT_NEAR(mean_of(squared), 18, 1.5);
  const auto deviation = [&] {
    const double value = std::log(draw_lognormal(random, {1, 1.5})) + 1.5 * 1.5 / 2;
    return value * value;
  };
  EXPECT_NEAR(mean_of(deviation), 1.5 * 1.5, 0.15);
}

// 16,384 workers have 16,384 x 168 / 50,000 deaths a week.
TEST(Process, TroublesComeAsOftenAsGiven) {
  const ClusterShape shape{32, 512};
  constexpr int kSeeds = 200;
  double deaths = 0, links = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto troubles = draw_troubles(shape, {}, kWeek, static_cast<uint64_t>(seed));
    deaths += static_cast<double>(of_kind(troubles, TroubleKind::DeadWorker).size());
    links += static_cast<double>(of_kind(troubles, TroubleKind::SlowLink).size());
  }
  EXPECT_NEAR(deaths / kSeeds, 16384 * 168 / 50'000.0, 2.5);
  EXPECT_NEAR(links / kSeeds, 31 * 512 * 168 / 300'000.0, 1.2);
}

TEST(Process, ASeedRepeatsItsTroubles) {
  const ClusterShape shape{8, 64};
  Processes processes;
  processes.deaths.hours_between = processes.slow_workers.hours_between = 500;
  const auto first = draw_troubles(shape, processes, kWeek, 7);
  EXPECT_EQ(first, draw_troubles(shape, processes, kWeek, 7));
  EXPECT_NE(first, draw_troubles(shape, processes, kWeek, 8));
  // Deaths stay as they are when there are other troubles beside them.
  processes.slow_workers.hours_between = 50;
  const auto second = draw_troubles(shape, processes, kWeek, 7);
  EXPECT_EQ(of_kind(first, TroubleKind::DeadWorker), of_kind(second, TroubleKind::DeadWorker));
}

TEST(Process, TroublesAreInOrderAndInRange) {
  const ClusterShape shape{4, 6};
  Processes processes;
  processes.deaths = {10, {}, {}};
  processes.slow_workers.hours_between = processes.slow_links.hours_between = 10;
  const auto troubles = draw_troubles(shape, processes, kWeek, 3);
  ASSERT_GT(troubles.size(), 100u);
  EXPECT_TRUE(std::is_sorted(troubles.begin(), troubles.end(),
                             [](const auto& a, const auto& b) { return a.begin < b.begin; }));
  for (const Trouble& trouble : troubles) {
    const bool dead = trouble.kind == TroubleKind::DeadWorker;
    const int32_t stages = trouble.kind == TroubleKind::SlowLink ? 3 : 4;
    EXPECT_TRUE(trouble.stage >= 0 && trouble.stage < stages) << trouble.stage;
    EXPECT_TRUE(trouble.pipeline >= 0 && trouble.pipeline < 6) << trouble.pipeline;
    EXPECT_LT(trouble.begin, kWeek);
    if (dead) {
      EXPECT_EQ(trouble.end, kLongestTime);
      EXPECT_EQ(trouble.factor, 0);
    } else {
      EXPECT_GE(trouble.end, trouble.begin);
      EXPECT_TRUE(trouble.factor >= 1.05 && trouble.factor <= kMostFactor) << trouble.factor;
    }
  }
}

TEST(Process, NothingIsDrawnWithoutARate) {
  Processes none;
  none.deaths.hours_between = none.slow_workers.hours_between = 0;
  none.slow_links.hours_between = 1;
  EXPECT_TRUE(draw_troubles({1, 8}, none, kWeek, 1).empty());  // one stage has no links
}

}  // namespace
}  // namespace tenuto::outlook
