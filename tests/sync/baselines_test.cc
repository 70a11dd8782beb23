// The published systems beside our sync modes: what they choose, and what comes of it, by hand.
#include "sync/baselines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "sync/baseline_modes.h"
#include "sync/choose.h"

namespace tenuto {
namespace {

IterationTime time_of(double compute_ms, double transfer_ms = 0) {
  return {from_milliseconds(compute_ms), from_milliseconds(transfer_ms)};
}

// A trial of replicas that need 80 ms to compute and 20 ms to transfer, always; updates take no
// time. No accuracy ends it.
TrialSetting trial_of(int32_t replicas, double limit_ms, std::vector<SlowPhase> phases = {}) {
  TrialSetting trial;
  trial.scenario.replicas = replicas;
  trial.scenario.base = time_of(80, 20);
  trial.scenario.compute_jitter = trial.scenario.transfer_jitter = 0;
  trial.scenario.phases = std::move(phases);
  trial.limit = from_milliseconds(limit_ms);
  trial.evaluation = trial.limit;
  trial.target = 2;
  return trial;
}

TrialResult result_of(const std::string& baseline, TrialSetting trial) {
  const Status set = set_baseline(baseline, trial);
  EXPECT_TRUE(set.ok()) << baseline;
  const auto result = run_trial(trial);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.value();
}

// 100, then 100 + 0.2 x 100, then 120 + 0.2 x 80.
TEST(LbBsp, PredictsByAMovingAverage) {
  const std::vector<IterationTime> samples = {time_of(100, 10), time_of(200, 10), time_of(200, 20)};
  EXPECT_EQ(moving_average(samples).compute, from_milliseconds(136));
  EXPECT_EQ(moving_average(samples).transfer, from_milliseconds(12));
  EXPECT_EQ(moving_average(std::span(samples).first(1)).compute, from_milliseconds(100));
}

// The last replica is predicted to need 120 ms after one iteration of 200 ms. All end together with
// shares of 1.043 and 0.870 of 8 micro-batches: 8.35 and 6.96. One of the fast ones has the rest.
TEST(LbBsp, BalancesByPredictedTimes) {
  std::vector<std::vector<IterationTime>> samples(4, {time_of(100)});
  const auto mode = [&] {
    const auto found = mode_by_speed(samples, 8);
    return found.ok() ? to_text(found.value()) : found.error().message;
  };
  EXPECT_EQ(mode(), "rebalanced:8,8,8,8");
  samples[3].push_back(time_of(200));
  EXPECT_EQ(mode(), "rebalanced:9,8,8,7");
  samples[3] = {time_of(200)};
  EXPECT_EQ(mode(), "rebalanced:9,9,9,5");
}

// Replica 0 computes for 160 ms. Its time is known when the second iteration has begun, so two
// iterations take 180 ms. Then it has 9 and the others 17 of 16 micro-batches: 110 ms. Seven of
// these updates end within a second.
TEST(LbBsp, ByHand) {
  const TrialResult result = result_of("lb-bsp", trial_of(8, 1000, {{std::nullopt, {{0, 2, 1}}}}));
  EXPECT_EQ(result.gradients, 8 * 7);
  EXPECT_EQ(result.changes, 1);
  EXPECT_NEAR(result.measure.mean_age, 3.5, 0.02);  // about that of synchronous training
}

TEST(SyncSwitch, SynchronousFirstAndWithoutStragglers) {
  const auto mode = [](double wanted, double done, double slowest_ms) {
    return to_text(
        mode_by_switch({wanted, done, {time_of(100), time_of(80, 20), time_of(slowest_ms)}}));
  };
  EXPECT_EQ(mode(0.5, 0, 100), "synchronous");
  EXPECT_EQ(mode(0.5, 0.49, 119), "synchronous");
  EXPECT_EQ(mode(0.5, 0.49, 121), "asynchronous");
  EXPECT_EQ(mode(0.5, 0.5, 100), "asynchronous");
  EXPECT_EQ(mode(0, 0, 100), "asynchronous");
  EXPECT_EQ(mode(1, 0.99, 100), "synchronous");
}

// 4 gradients each 100 ms: half of 40 are made within the first second, after which it decides for
// the first time, and half of 80 within the second one.
TEST(SyncSwitch, SwitchesWhenItsShareIsDone) {
  TrialSetting trial = trial_of(4, 2500);
  trial.planned = 40;
  EXPECT_EQ(result_of("sync-switch:50", trial).changes, 1);
  EXPECT_EQ(result_of("sync-switch:0", trial).changes, 0);  // asynchronous from the beginning
  trial.planned = 80;
  EXPECT_EQ(result_of("sync-switch:50", trial).changes, 1);
  trial.planned = 1000;
  EXPECT_EQ(result_of("sync-switch:50", trial).changes, 0);
}

// A link is 16 times slower for 1.5 s. The run is asynchronous from the first decision until the
// slow iterations are among the last 24 no more, and then synchronous again.
TEST(SyncSwitch, ComesBackAfterTheStraggler) {
  TrialSetting trial = trial_of(
      4, 4600, {{from_milliseconds(1500), {{0, 1, 16}}}, {from_milliseconds(100'000), {}}});
  EXPECT_EQ(result_of("sync-switch:100", trial).changes, 2);
  trial.limit = from_milliseconds(3100);
  EXPECT_EQ(result_of("sync-switch:100", trial).changes, 1);
}

// Each of four replicas computes for two, so that an iteration takes 180 ms, and three make an
// update of all parts. The fourth offer comes at the same moment and is refused. In the second
// there are five updates, and one offer more, which comes after its end.
TEST(GradientCoding, ByHand) {
  const TrialResult result = result_of("gradient-coding:1", trial_of(4, 1000));
  EXPECT_EQ(result.gradients, 5 * 4);
  EXPECT_EQ(result.measure.updates, 5);
  EXPECT_EQ(result.measure.dropped_fraction, 5.0 / 21);
  EXPECT_EQ(result.measure.applied_fraction, (std::vector<double>{1, 1, 1, 0}));
}

// The same data as synchronous training, and the same full updates, so it needs about as many.
TEST(GradientCoding, TrainsAsSynchronousDoes) {
  TrialSetting trial;
  trial.scenario = *find_sync_scenario("slow-link");
  const auto synchronous = run_trial(trial);
  ASSERT_TRUE(synchronous.ok() && synchronous.value().reached);
  const TrialResult coded = result_of("gradient-coding:2", trial);
  ASSERT_TRUE(coded.reached) << coded.accuracy;
  EXPECT_NEAR(coded.gradients, synchronous.value().gradients, 0.5 * synchronous.value().gradients);
  // An iteration of 260 ms instead of one of 400 ms.
  EXPECT_LT(*coded.reached, *synchronous.value().reached);
}

// Every usual baseline runs for every number of replicas.
TEST(Baselines, UsualOnesRun) {
  for (const char* name : {"four-slow-link", "sixteen-links"}) {
    for (const std::string& baseline : usual_baselines()) {
      SCOPED_TRACE(cat(baseline, " in ", name));
      EXPECT_TRUE(is_baseline(baseline));
      TrialSetting trial;
      trial.scenario = *find_sync_scenario(name);
      trial.limit = from_milliseconds(1500);
      trial.evaluation = trial.limit;
      const TrialResult result = result_of(baseline, trial);
      EXPECT_GT(result.gradients, 0);
      EXPECT_LT(result.measure.dropped_fraction, 1);
    }
  }
}

TEST(Baselines, NoGraceLeavesOutTheWindow) {
  ChooseInput input;
  for (int i = 0; i < 8; ++i) input.samples.push_back({time_of(i == 0 ? 320 : 80, 20)});
  input.micros = 16;
  input.current = SyncMode{};
  const auto windows = [&] {
    const auto choice = choose_by_look_ahead(input);
    EXPECT_TRUE(choice.ok());
    const auto& all = choice.value().alternatives;
    return std::count_if(all.begin(), all.end(), [](const SyncAlternative& one) {
      return one.mode.kind == SyncKind::Grace;
    });
  };
  EXPECT_EQ(windows(), 4);  // grace:4 to grace:7
  input.grace = false;
  EXPECT_EQ(windows(), 0);
}

TEST(Baselines, Names) {
  TrialSetting trial = trial_of(8, 1000);
  EXPECT_TRUE(is_baseline("sync-switch"));
  EXPECT_FALSE(is_baseline("bounded:3"));
  EXPECT_FALSE(is_baseline(""));
  ASSERT_TRUE(set_baseline("sync-switch:12.5", trial).ok());
  EXPECT_EQ(trial.policy, SyncPolicy::Switched);
  EXPECT_EQ(trial.synchronous_share, 0.125);
  ASSERT_TRUE(set_baseline("no-grace", trial).ok());
  EXPECT_EQ(trial.policy, SyncPolicy::LookAhead);
  EXPECT_FALSE(trial.grace);
  ASSERT_TRUE(set_baseline("gradient-coding:2", trial).ok());
  EXPECT_EQ(to_text(trial.mode), "x:6");
  EXPECT_EQ(trial.method, MethodKind::Coded);
  ASSERT_TRUE(set_baseline("zeno++", trial).ok());
  EXPECT_EQ(trial.policy, SyncPolicy::Fixed);
  EXPECT_EQ(to_text(trial.mode), "asynchronous");
  EXPECT_EQ(trial.method, MethodKind::Scored);
}

TEST(Baselines, Refusals) {
  const auto refusal = [](const std::string& name) {
    TrialSetting trial = trial_of(8, 1000);
    const Status set = set_baseline(name, trial);
    return set.ok() ? std::string() : set.error().message;
  };
  EXPECT_EQ(refusal("lbbsp"),
            "baseline 'lbbsp': expected lb-bsp, sync-switch:P, gradient-coding:S, zeno++ or "
            "no-grace");
  EXPECT_EQ(refusal("zeno++:3"), "baseline 'zeno++:3': expected nothing behind zeno++");
  for (const char* name : {"sync-switch", "sync-switch:", "sync-switch:101", "sync-switch:nan"}) {
    EXPECT_EQ(refusal(name),
              cat("baseline '", name,
                  "': expected the percentage of the run that is synchronous, from 0 to 100"));
  }
  for (const char* name : {"gradient-coding", "gradient-coding:8", "gradient-coding:-1"}) {
    EXPECT_EQ(refusal(name), cat("baseline '", name,
                                 "': expected the replicas that an update does without, from 0 to "
                                 "7 of 8"));
  }
}

TEST(Baselines, MethodsThatDoNotFitAreRefused) {
  const auto refusal = [](MethodKind method, const std::string& mode, int32_t replicas) {
    TrialSetting trial = trial_of(replicas, 1000);
    trial.method = method;
    trial.mode = sync_mode_from_text(mode).value();
    const auto result = run_trial(trial);
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_EQ(refusal(MethodKind::Coded, "backup:6", 8),
            "gradient coding needs the mode x:K, fixed and without local steps, found backup:6");
  EXPECT_EQ(refusal(MethodKind::Coded, "x:6+local:2", 8),
            "gradient coding needs the mode x:K, fixed and without local steps, found x:6+local:2");
  EXPECT_EQ(refusal(MethodKind::Scored, "x:6", 8),
            "Zeno++ needs asynchronous, fixed and without local steps, found x:6");
  EXPECT_EQ(refusal(MethodKind::Coded, "x:9", 8),
            "sync mode x:9: expected a count from 1 to 8 with 8 replicas, found 9");
  EXPECT_EQ(refusal(MethodKind::Coded, "x:64", 65),
            "gradient coding: expected at most 64 replicas, found 65");
  EXPECT_EQ(refusal(MethodKind::Coded, "x:63", 64), "");
  TrialSetting trial = trial_of(4, 1000);
  trial.synchronous_share = 1.5;
  EXPECT_EQ(run_trial(trial).error().message,
            "a trial needs a synchronous share from 0 to 1 and a plan above 0 gradients, found 1.5 "
            "and 1000");
}

}  // namespace
}  // namespace tenuto
