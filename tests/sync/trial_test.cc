// Trials of modes with real gradients on the virtual clock.
#include "sync/trial.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "base/text.h"
#include "sync/trial_model.h"

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

TEST(Trial, LocalStepsAreRefused) {
  TrialSetting setting;
  setting.scenario = sync_scenarios()[0];
  setting.mode = sync_mode_from_text("synchronous+local:4").value();
  EXPECT_EQ(run_trial(setting).error().message,
            "sync mode synchronous+local:4: expected no local steps in a trial");
}

}  // namespace
}  // namespace tenuto
