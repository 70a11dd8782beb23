// How long a trouble is expected to go on.
#include "remedy/expected_duration.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "remedy/trouble_log.h"

namespace tenuto {
namespace {

TEST(ExpectedDuration, IsTheUsualOneThenAsLongAgainBeforeAnythingHasEnded) {
  EXPECT_EQ(expected_rest({}, 0), 40);
  EXPECT_EQ(expected_rest({}, 5), 35);
  for (const int64_t lasted : {20, 21, 1000}) {
    EXPECT_EQ(expected_rest({}, lasted), static_cast<double>(lasted));
  }
}

TEST(ExpectedDuration, ComesToTheMeanOfWhatWasSeen) {
  const SeenDurations twenties(kMostSeen, 20);
  EXPECT_NEAR(expected_rest(twenties, 0), 20, 0.5);
  EXPECT_NEAR(expected_rest(twenties, 15), 5, 0.5);
  EXPECT_EQ(expected_rest(twenties, 20), 20);  // it outlives all others
  EXPECT_EQ(expected_rest({10, 50}, 30), 25);
}

// The moment that is named is the first one, compared with all moments before it.
TEST(ExpectedDuration, IsReachedAfterTheStepsThatAreSaid) {
  Random random(1);
  for (int32_t i = 0; i < 2000; ++i) {
    SeenDurations seen;
    for (uint64_t n = random.below(6); n > 0; --n) {
      seen.push_back(static_cast<int64_t>(1 + random.below(60)));
    }
    const double rest = 0.25 * static_cast<double>(random.below(400));
    const auto lasted = static_cast<int64_t>(random.below(50));
    const int64_t then = lasted_for_rest(seen, lasted, rest);
    ASSERT_GE(then, lasted);
    EXPECT_GE(expected_rest(seen, then), rest);
    for (int64_t before = lasted; before < then; ++before) {
      EXPECT_LT(expected_rest(seen, before), rest);
    }
  }
  EXPECT_GT(lasted_for_rest({3}, 0, 1e300), int64_t{1} << 40);
}

TEST(TroubleLog, CountsATroubleOnceItHasEnded) {
  const Link link{std::chrono::milliseconds(1), 1e9};
  const Cluster healthy = uniform_cluster(4, link);
  Cluster slow = healthy;
  slow.workers[1].speed = 0.5;
  Cluster both = slow;
  both.exceptions[{{2}, {3}}] = both.exceptions[{{3}, {2}}] = {std::chrono::milliseconds(9), 1e9};
  TroubleLog log(3);
  log.note(healthy, slow, 10);
  EXPECT_EQ(log.known(11).well, SeenDurations({7}));
  EXPECT_TRUE(log.known(11).ended.empty());
  slow.workers[1].speed = 0.4;  // the same trouble
  log.note(healthy, slow, 12);
  log.note(healthy, both, 20);
  const std::vector<PresentTrouble> two = {{{1}, {1}, 12}, {{2}, {3}, 2}};
  EXPECT_EQ(log.known(22).present, two);
  EXPECT_EQ(log.known(22).lasted, 2);
  log.note(healthy, slow, 25);  // both directions of the link are one trouble
  EXPECT_EQ(log.known(30).ended, SeenDurations({5}));
  log.note(healthy, healthy, 40);
  EXPECT_TRUE(log.known(41).present.empty());
  EXPECT_EQ(log.known(41).ended, SeenDurations({5, 30}));
  log.note(healthy, both, 50);
  EXPECT_EQ(log.known(50).well, SeenDurations({7, 10}));
}

TEST(TroubleLog, ForgetsTheOldest) {
  const Cluster healthy = uniform_cluster(2, {});
  Cluster slow = healthy;
  slow.workers[1].speed = 0.5;
  TroubleLog log;
  int64_t step = 0;
  for (size_t i = 0; i < kMostSeen + 3; ++i) {
    log.note(healthy, slow, step);
    step += static_cast<int64_t>(i) + 1;
    log.note(healthy, healthy, step);
  }
  const SeenDurations ended = log.known(step).ended;
  ASSERT_EQ(ended.size(), kMostSeen);
  EXPECT_EQ(ended.front(), 4);
  EXPECT_EQ(ended.back(), static_cast<int64_t>(kMostSeen) + 3);
}

// Troubles end one after the other, those that have lasted longest last.
TEST(Forecast, EndsTroublesByTheirExpectedRest) {
  const Link link{std::chrono::milliseconds(1), 1e9};
  const Cluster healthy = uniform_cluster(4, link);
  Cluster now = healthy;
  now.workers[1].speed = 0.5;
  now.exceptions[{{2}, {3}}] = now.exceptions[{{3}, {2}}] = {std::chrono::milliseconds(9), 1e9};
  KnownTroubles troubles;
  troubles.present = {{{1}, {1}, 70}, {{2}, {3}, 50}};
  const std::vector<ClusterPhase> phases = forecast(now, healthy, troubles, 140);
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].steps, 50);
  EXPECT_EQ(phases[0].cluster.exceptions, now.exceptions);
  EXPECT_EQ(phases[1].steps, 20);
  EXPECT_TRUE(phases[1].cluster.exceptions.empty());
  EXPECT_EQ(phases[1].cluster.workers[1].speed, 0.5);
  EXPECT_EQ(phases[2].steps, 70);
  EXPECT_EQ(phases[2].cluster.workers[1].speed, 1);
  const std::vector<ClusterPhase> later = forecast(now, healthy, troubles, 140, 15);
  EXPECT_EQ(later[0].steps, 65);
  EXPECT_EQ(later[1].steps, 20);
  EXPECT_EQ(later[2].steps, 40);
}

TEST(Forecast, TellsFewPhasesApart) {
  const Cluster healthy = uniform_cluster(10, {});
  Cluster now = healthy;
  KnownTroubles troubles;
  for (int32_t w = 0; w < 8; ++w) {
    now.workers[static_cast<size_t>(w)].speed = 0.5;
    troubles.present.push_back({{w}, {w}, 10 + w});
  }
  const std::vector<ClusterPhase> phases = forecast(now, healthy, troubles, 1000);
  ASSERT_EQ(phases.size(), kMostPhases);
  double all = 0;
  for (const ClusterPhase& phase : phases) all += phase.steps;
  EXPECT_EQ(all, 1000);
  for (const Worker& worker : phases.back().cluster.workers) EXPECT_EQ(worker.speed, 1);
}

// A run that ends before its troubles do, and one without troubles.
TEST(Forecast, EndsWithTheRun) {
  const Cluster healthy = uniform_cluster(2, {});
  Cluster now = healthy;
  now.workers[0].speed = 0.5;
  KnownTroubles troubles;
  troubles.present = {{{0}, {0}, 30}};
  const std::vector<ClusterPhase> phases = forecast(now, healthy, troubles, 20);
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(phases[0].steps, 20);
  EXPECT_EQ(phases[1].steps, 0);
  troubles.present.clear();
  troubles.lasted = 20;
  troubles.well = {35, 45};
  ASSERT_EQ(forecast(healthy, healthy, troubles, 1000).size(), 1U);
  EXPECT_EQ(forecast(healthy, healthy, troubles, 1000)[0].steps, 20);
}

}  // namespace
}  // namespace tenuto
