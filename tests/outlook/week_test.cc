// Days of training: equal to a walk through every step, and nothing is lost from the books.
#include "outlook/week.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/longest_time.h"
#include "base/random.h"
#include "outlook/process.h"

namespace tenuto::outlook {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr Remedies kAll{true, true, true, true, true};
constexpr Remedies kReroute{true, false, false, false, false};

// Steps of minutes, so that a day has few of them.
StepSetup long_steps() {
  StepSetup setup;
  setup.micros = 4;
  setup.forward = setup.backward_input = setup.backward_weight = seconds(10);
  setup.link = seconds(1);
  setup.cross = seconds(3);
  setup.spare = 3;
  setup.layers = 3;
  return setup;
}

WeekSetup one_day() {
  WeekSetup setup;
  setup.length = hours(24);
  setup.pauses = {seconds(31), seconds(7), seconds(400), seconds(900)};
  setup.checkpoint_steps = 10;
  setup.buckets = 23;
  return setup;
}

// Troubles by the dozen, which overlap and fall into pauses.
std::vector<Trouble> many_troubles(const ClusterShape& shape, uint64_t seed) {
  Processes processes;
  processes.deaths = {12, {3, 1}, {}};
  processes.slow_workers = {40, {2, 1}, {1, 0.8}};
  processes.slow_links = {40, {2, 1}, {10, 1}};
  return draw_troubles(shape, processes, one_day().length, seed);
}

Remedies remedies_of(uint32_t bits) {
  return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
}

int64_t sum_over_time(const WeekResult& result) {
  return std::accumulate(result.over_time.begin(), result.over_time.end(), int64_t{0});
}

TEST(Week, FromChangeToChangeEqualsStepByStep) {
  const ClusterShape shape{3, 3};
  bool lost = false, waited = false, moved = false;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto troubles = many_troubles(shape, seed);
    ASSERT_GT(troubles.size(), 5u);
    for (uint32_t bits = 0; bits < 32; ++bits) {
      StepPrices fast(shape, long_steps(), remedies_of(bits));
      StepPrices slow(shape, long_steps(), remedies_of(bits), false);
      const WeekResult result = run_week(one_day(), troubles, fast);
      EXPECT_EQ(result, run_week(one_day(), troubles, slow, Stepping::EachStep))
          << "seed " << seed << ", remedies " << bits;
      EXPECT_EQ(result.total(), one_day().length) << "seed " << seed << ", remedies " << bits;
      EXPECT_EQ(sum_over_time(result), result.steps);
      lost |= result.lost_steps > 0;
      waited |= result.waiting > Duration{};
      moved |= result.pauses[static_cast<size_t>(PauseKind::Layers)] > Duration{};
    }
  }
  EXPECT_TRUE(lost && waited && moved) << "the troubles are too harmless to show anything";
}

TEST(Week, WithoutTroublesOnlyStepsTakeTime) {
  const ClusterShape shape{3, 2};
  StepPrices prices(shape, long_steps(), kAll);
  const Duration step = prices.of({}, {})->time;
  const WeekResult result = run_week(one_day(), {}, prices);
  EXPECT_EQ(result.steps, one_day().length / step);
  EXPECT_EQ(result.training, result.steps * step);
  EXPECT_EQ(result.unfinished, one_day().length % step);
  EXPECT_EQ(result.total(), one_day().length);
}

// Worked out by hand: a death in the eighth step costs the two steps since the checkpoint.
TEST(Week, ARestartGoesBackToTheCheckpoint) {
  const ClusterShape shape{2, 2};
  StepPrices prices(shape, long_steps(), {});
  const Duration whole = prices.of({}, {})->time;
  const Condition missing = {Pattern{Mark{0, TroubleKind::DeadWorker, 0}}};
  const Duration half = prices.of(missing, {})->time;
  WeekSetup setup = one_day();
  setup.checkpoint_steps = 3;
  const Trouble death{7 * whole + seconds(1), kLongestTime, TroubleKind::DeadWorker, 1, 0, 0};
  const WeekResult result = run_week(setup, {death}, prices);
  const Duration restart = setup.pause(PauseKind::Restart);
  EXPECT_EQ(result.lost_steps, 2);
  EXPECT_EQ(result.lost, 2 * whole);
  EXPECT_EQ(result.steps, 6 + (setup.length - 8 * whole - restart) / half);
  EXPECT_EQ(result.pauses[static_cast<size_t>(PauseKind::Restart)], restart);
}

TEST(Week, AReRoutedDeathIsAPause) {
  const ClusterShape shape{2, 2};
  StepPrices prices(shape, long_steps(), {true, false, false, false, true});
  const Duration whole = prices.of({}, {})->time;
  const Trouble death{7 * whole, 7 * whole + seconds(1), TroubleKind::DeadWorker, 1, 0, 0};
  const WeekSetup setup = one_day();
  const WeekResult result = run_week(setup, {death}, prices);
  // It is repaired within the pause.
  const Duration pauses = setup.pause(PauseKind::Death) + setup.pause(PauseKind::Join);
  EXPECT_EQ(result.lost_steps, 0);
  EXPECT_EQ(result.steps, (setup.length - pauses) / whole);
}

TEST(Week, WithoutGrowingBackARepairedWorkerStaysAway) {
  const ClusterShape shape{2, 2};
  const Trouble death{seconds(0), hours(1), TroubleKind::DeadWorker, 0, 0, 0};
  const Trouble forever{seconds(0), kLongestTime, TroubleKind::DeadWorker, 0, 0, 0};
  StepPrices prices(shape, long_steps(), kReroute);
  EXPECT_EQ(run_week(one_day(), {death}, prices), run_week(one_day(), {forever}, prices));
  StepPrices growing(shape, long_steps(), {true, false, false, false, true});
  EXPECT_GT(run_week(one_day(), {death}, growing).steps,
            run_week(one_day(), {death}, prices).steps);
}

TEST(Week, ARunWaitsForAWorkerThatItNeeds) {
  const ClusterShape shape{2, 1};
  const Trouble death{hours(2), hours(5), TroubleKind::DeadWorker, 0, 1, 0};
  for (const Remedies& remedies : {Remedies{}, kReroute, kAll}) {
    StepPrices prices(shape, long_steps(), remedies);
    const Duration step = prices.of({}, {})->time;
    const WeekResult result = run_week(one_day(), {death}, prices);
    // It notices the death at the end of a step.
    const Duration noticed = (hours(2) + step - Duration(1)) / step * step;
    EXPECT_EQ(result.waiting, hours(5) - noticed);
    EXPECT_EQ(result.pauses[static_cast<size_t>(PauseKind::Restart)],
              one_day().pause(PauseKind::Restart));
    EXPECT_EQ(result.total(), one_day().length);
  }
}

// Layers move after as much has been lost as the move costs, and move back in the same way.
TEST(Week, LayersMoveOnceItPays) {
  const ClusterShape shape{3, 3};
  const Trouble death{seconds(0), hours(8), TroubleKind::DeadWorker, 0, 1, 0};
  StepSetup step = long_steps();
  step.micros = 20;
  StepPrices prices(shape, step, kAll);
  WeekSetup setup = one_day();
  const WeekResult result = run_week(setup, {death}, prices);
  EXPECT_EQ(result.pauses[static_cast<size_t>(PauseKind::Layers)],
            2 * setup.pause(PauseKind::Layers));
  setup.pauses[static_cast<size_t>(PauseKind::Layers)] = hours(24);
  EXPECT_EQ(run_week(setup, {death}, prices).pauses[static_cast<size_t>(PauseKind::Layers)],
            Duration{});
}

// With deaths for good, at one stage, each step only gets longer. So one death more never gains.
// Deaths take no pause here: two that fall into one step have one pause together.
TEST(Week, MoreDeathsNeverGain) {
  const ClusterShape shape{3, 5};
  WeekSetup setup = one_day();
  setup.pauses[static_cast<size_t>(PauseKind::Death)] = {};
  Random random(4);
  for (int round = 0; round < 40; ++round) {
    std::vector<Trouble> deaths;
    int64_t before = INT64_MAX;
    for (int32_t pipeline = 0; pipeline <= shape.pipelines; ++pipeline) {
      StepPrices prices(shape, long_steps(), kReroute);
      const WeekResult result = run_week(setup, deaths, prices);
      EXPECT_LE(result.steps, before) << "round " << round << ", " << deaths.size();
      before = result.steps;
      if (pipeline == shape.pipelines) break;
      deaths.push_back({seconds(random.below(24 * 3600)), kLongestTime, TroubleKind::DeadWorker,
                        pipeline, 1, 0});
      std::sort(deaths.begin(), deaths.end(),
                [](const Trouble& a, const Trouble& b) { return a.begin < b.begin; });
    }
  }
}

TEST(Week, RememberedPricesChangeNothing) {
  const ClusterShape shape{4, 6};
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto troubles = many_troubles(shape, seed);
    StepPrices with(shape, long_steps(), kAll), without(shape, long_steps(), kAll, false);
    EXPECT_EQ(run_week(one_day(), troubles, with), run_week(one_day(), troubles, without));
    EXPECT_LT(with.played(), without.played());
  }
}

}  // namespace
}  // namespace tenuto::outlook
