// Trials of modes with real gradients on the virtual clock.
#include "sync/trial.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "base/text.h"
#include "sync/kappa_estimate.h"
#include "sync/trial_model.h"
#include "sync/trial_step.h"

namespace tenuto {
namespace {

// The gradient along random directions is the slope of the loss.
TEST(TrialModel, GradientIsTheSlopeOfTheLoss) {
  const TrialModel model(1, 4);
  const std::vector<float> at = model.initial();
  Random random(2);
  for (int round = 0; round < 5; ++round) {
    std::vector<float> along(at.size());
    for (float& one : along) one = static_cast<float>(random.uniform() - 0.5);
    const auto loss = [&](float step) {
      std::vector<float> moved = at;
      for (size_t i = 0; i < at.size(); ++i) moved[i] += step * along[i];
      return model.gradient(moved, 1, 5, 256).loss;
    };
    constexpr float kStep = 2e-3f;
    const double slope = (loss(kStep) - loss(-kStep)) / (2 * double{kStep});
    const std::vector<float> gradient = model.gradient(at, 1, 5, 256).sum;
    double expected = 0, size = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      expected += double{gradient[i]} * double{along[i]};
      size += std::abs(double{gradient[i]} * double{along[i]});
    }
    EXPECT_NEAR(slope, expected, 0.01 * size);
  }
}

TEST(TrialModel, ReplicasReadTheirOwnData) {
  const TrialModel model(1, 4);
  const std::vector<float> at = model.initial();
  EXPECT_EQ(model.gradient(at, 1, 5, 16).sum, model.gradient(at, 1, 5, 16).sum);
  EXPECT_NE(model.gradient(at, 1, 5, 16).sum, model.gradient(at, 2, 5, 16).sum);
  EXPECT_NE(model.gradient(at, 1, 5, 16).sum, model.gradient(at, 1, 6, 16).sum);
  EXPECT_LT(model.accuracy(at), 0.4);
}

TrialResult trial(const std::string& scenario, const std::string& mode, SyncPolicy policy) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario(scenario);
  setting.policy = policy;
  setting.mode = sync_mode_from_text(mode).value();
  const auto result = run_trial(setting);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.value();
}

// A slow link costs the synchronous mode most of its speed, and the chooser nearly none of it.
TEST(Trial, ReachesTheTarget) {
  const TrialResult synchronous = trial("slow-link", "synchronous", SyncPolicy::Fixed);
  const TrialResult chosen = trial("slow-link", "synchronous", SyncPolicy::LookAhead);
  ASSERT_TRUE(synchronous.reached && chosen.reached)
      << synchronous.accuracy << " " << chosen.accuracy;
  EXPECT_GT(*synchronous.reached, *chosen.reached * 2);
  EXPECT_GE(chosen.accuracy, 0.94);
  EXPECT_GT(chosen.changes, 0);
  EXPECT_LT(chosen.gradients, 1.5 * synchronous.gradients);
}

// The mode changes on the way, so the losses say something of what age costs.
TEST(Trial, KappaIsLearnedOnTheWay) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("slow-link");
  setting.policy = SyncPolicy::LookAhead;
  EXPECT_EQ(run_trial(setting).value().kappa, setting.kappa);
  setting.learns_kappa = true;
  const auto learned = run_trial(setting);
  ASSERT_TRUE(learned.ok()) << learned.error().message;
  EXPECT_GT(learned.value().changes, 0);
  EXPECT_NE(learned.value().kappa, setting.kappa);
  EXPECT_GE(learned.value().kappa, 0);
  EXPECT_LE(learned.value().kappa, KappaEstimate(setting.kappa, 8).most() + 1e-9);
  EXPECT_TRUE(learned.value().reached.has_value()) << learned.value().accuracy;
}

// All have computed after some 110 ms, and the first update is applied 50 ms later. An evaluation
// between finds what the first parameters know.
TEST(Trial, EvaluatesBeforeTheNextEvent) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("none");
  setting.scenario.apply = from_milliseconds(50);
  setting.mode = sync_mode_from_text("synchronous").value();
  const TrialModel model(setting.seed, setting.scenario.replicas);
  const double first = model.accuracy(model.initial());
  setting.evaluation = from_milliseconds(130);
  setting.limit = from_milliseconds(140);
  setting.target = first;
  const auto result = run_trial(setting);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().accuracy, first);
  ASSERT_TRUE(result.value().reached);
  EXPECT_EQ(*result.value().reached, from_milliseconds(130));
  EXPECT_EQ(result.value().gradients, 0);
}

// At its usual rate the network trains without a rise of the loss. With ever higher rates it comes
// to one at which it does not.
TEST(Trial, ALearningRateThatIsTooHighIsNoticed) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("none");
  setting.mode = sync_mode_from_text("asynchronous").value();
  setting.limit = std::chrono::seconds(20);
  setting.evaluation = setting.limit;  // so that no trial ends before
  const auto usual = run_trial(setting);
  ASSERT_TRUE(usual.ok()) << usual.error().message;
  EXPECT_EQ(usual.value().rises, 0);
  int64_t rises = 0;
  for (const double rate : {4.8, 9.6, 19.2, 38.4}) {
    setting.rate = rate;
    const auto result = run_trial(setting);
    ASSERT_TRUE(result.ok()) << result.error().message;
    rises += result.value().rises;
  }
  EXPECT_GT(rises, 0);
}

TEST(Trial, PublishedHeuristicRuns) {
  const TrialResult result = trial("slow-compute", "synchronous", SyncPolicy::Published);
  ASSERT_TRUE(result.reached);
  EXPECT_GT(result.changes, 0);
}

TEST(Trial, IsTheSameTwice) {
  const TrialResult first = trial("random", "grace:4", SyncPolicy::Fixed);
  const TrialResult second = trial("random", "grace:4", SyncPolicy::Fixed);
  EXPECT_EQ(first.reached, second.reached);
  EXPECT_EQ(first.gradients, second.gradients);
}

// Each optimizer reaches the target, and a mode with partial updates needs no other learning rate.
TEST(Trial, EveryOptimizerTrainsByMass) {
  for (const char* name : {"momentum", "nesterov", "adamw"}) {
    TrialSetting setting;
    setting.scenario = *find_sync_scenario("none");
    setting.scenario.optimizer = find_trial_optimizer(name).value();
    const auto synchronous = run_trial(setting);
    setting.scenario.phases = find_sync_scenario("slow-link")->phases;
    setting.mode = sync_mode_from_text("grace:4").value();
    const auto partial = run_trial(setting);
    ASSERT_TRUE(synchronous.ok() && partial.ok()) << name;
    EXPECT_TRUE(synchronous.value().reached) << name << " " << synchronous.value().accuracy;
    EXPECT_TRUE(partial.value().reached) << name << " " << partial.value().accuracy;
    EXPECT_LT(partial.value().gradients, 2 * synchronous.value().gradients) << name;
  }
}

TrialResult local_trial(const std::string& mode, double rate) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("slow-link");
  setting.mode = sync_mode_from_text(mode).value();
  setting.rate = rate;
  setting.evaluation = std::chrono::seconds(1);
  setting.limit = std::chrono::seconds(300);  // low rates: a replica's own batch is small
  const auto result = run_trial(setting);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.value();
}

// Four local steps share one transfer: the slow replica offers 4 iterations in 4 x 80 + 320 ms, and
// the seven others wait for it.
TEST(Trial, LocalStepsShareATransfer) {
  const TrialResult result = local_trial("synchronous+local:4", 0.3);
  EXPECT_TRUE(result.reached) << result.accuracy;
  EXPECT_NEAR(result.measure.gradients_per_second, 8 * 4 / 0.641, 3);
}

// An outer momentum of 0.5 moves twice as far in the end.
TEST(Trial, TheOuterStepHasMomentum) {
  const TrialResult plain = local_trial("synchronous+local:4", 0.15);
  const TrialResult outer = local_trial("synchronous+local:4+outer:1,0.5", 0.15);
  EXPECT_TRUE(outer.reached) << outer.accuracy;
  EXPECT_LT(outer.gradients, plain.gradients);
}

TEST(Trial, LocalStepsHaveALimit) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("none");
  setting.scenario.replicas = 2;
  setting.batch = 1;
  setting.rate = 0.1;
  setting.evaluation = setting.limit;
  setting.mode = sync_mode_from_text("synchronous+local:1000").value();
  ASSERT_TRUE(run_trial(setting).ok());
  EXPECT_EQ(run_trial(setting).value().gradients, 2000);
  setting.mode.local_steps = 1001;
  EXPECT_EQ(run_trial(setting).error().message,
            "sync mode synchronous+local:1001: expected at most 1000 local steps in a trial");
}

TEST(Trial, RefusesWhatCannotTrain) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("none");
  setting.rate = 0;
  EXPECT_EQ(run_trial(setting).error().message,
            "a trial needs a batch and a rate above 0, found 16 and 0");
}

}  // namespace
}  // namespace tenuto
