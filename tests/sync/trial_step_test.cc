// The optimizer of a trial: its names, its units, and its clipping.
#include "sync/trial_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

constexpr size_t kSize = 17;
constexpr TrialOptimizer kAll[] = {TrialOptimizer::Sgd, TrialOptimizer::Momentum,
                                   TrialOptimizer::Nesterov, TrialOptimizer::AdamW};

StepSetting setting_of(TrialOptimizer optimizer, double clip = 0) {
  return {optimizer, usual_rate(optimizer), 0.9, clip};
}

std::vector<float> random_vector(Random& random, size_t size = kSize) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) values.push_back(static_cast<float>(random.uniform() - 0.5));
  return values;
}

std::vector<float> times(float factor, std::vector<float> values) {
  for (float& value : values) value *= factor;
  return values;
}

TEST(TrialStep, NamesAreReadBack) {
  for (const TrialOptimizer optimizer : kAll) {
    EXPECT_EQ(find_trial_optimizer(to_text(optimizer)), optimizer);
  }
  EXPECT_EQ(find_trial_optimizer("nesterov"), TrialOptimizer::Nesterov);
  EXPECT_FALSE(find_trial_optimizer("adam"));
  EXPECT_FALSE(find_trial_optimizer(""));
}

// Plain SGD subtracts rate / full of each sample's gradient, bit for bit, whatever the mass.
TEST(TrialStep, SgdTakesSamples) {
  Random random(1);
  std::vector<float> plain = random_vector(random);
  std::vector<float> parameters = plain;
  TrialStep step(setting_of(TrialOptimizer::Sgd), kSize);
  const auto rate = static_cast<float>(1.2 / 128);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> sum = random_vector(random);
    const int64_t mass = 1 + random.below(128);
    for (size_t k = 0; k < kSize; ++k) plain[k] -= rate * sum[k];
    step.take(parameters, sum, {mass}, {128});
    ASSERT_EQ(parameters, plain) << i;
  }
}

// An update on whole vectors: the sum of the gradients, their clipped mean, and the optimizer's
// step. Plain SGD is momentum 0.
class WholeStep {
 public:
  WholeStep(const StepSetting& setting, size_t size)
      : setting_(setting), first_(size), second_(size) {}
  void take(std::vector<float>& parameters, const std::vector<std::vector<float>>& gradients,
            Mass mass, Mass full) {
    std::vector<float> sum(parameters.size(), 0.0f), mean;
    for (const std::vector<float>& gradient : gradients) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    const auto samples = static_cast<double>(mass.micros);
    const double clip = clip_factor(std::sqrt(squared_norm(sum)) / samples, setting_.clip, 0);
    for (const float value : sum) mean.push_back(static_cast<float>(clip / samples) * value);
    const UpdateMass of{mass, full, before_};
    before_ += mass;
    const MomentumFactors factors = momentum_factors(setting_.rate, setting_.momentum, of);
    AdamSettings adam = setting_.adam;
    adam.rate = setting_.rate;
    switch (setting_.optimizer) {
      case TrialOptimizer::Sgd:
        return take_momentum_step(parameters, first_, sum,
                                  {0, 1, setting_.rate * clip / static_cast<double>(full.micros)});
      case TrialOptimizer::Momentum:
        return take_momentum_step(parameters, first_, mean, factors);
      case TrialOptimizer::Nesterov:
        return take_nesterov_step(parameters, first_, mean, factors);
      case TrialOptimizer::AdamW:
        return take_adam_step(parameters, first_, second_, mean, adam, adam_factors(adam, of));
    }
  }

 private:
  StepSetting setting_;
  std::vector<float> first_, second_;
  Mass before_;
};

// Steps are taken in blocks of 1,024 elements, and the bits are those of steps on whole vectors:
// for any number of gradients and mass, clipped and not.
TEST(TrialStep, BlocksHaveTheBitsOfTheWhole) {
  for (const size_t size : {1, 1023, 1024, 1025, 5000}) {
    for (const TrialOptimizer optimizer : kAll) {
      for (const double clip : {0.0, 3.0}) {
        Random random(4 + size);
        std::vector<float> whole = random_vector(random, size), blocks = whole;
        WholeStep plain(setting_of(optimizer, clip), size);
        TrialStep step(setting_of(optimizer, clip), size);
        for (int i = 0; i < 6; ++i) {
          std::vector<std::vector<float>> gradients;
          const int64_t count = 1 + random.below(10), mass = count + random.below(3);
          for (int64_t k = 0; k < count; ++k) gradients.push_back(random_vector(random, size));
          const std::vector<std::span<const float>> spans(gradients.begin(), gradients.end());
          plain.take(whole, gradients, {mass}, {16});
          step.take_sum(blocks, spans, {mass}, {16});
          ASSERT_EQ(blocks, whole) << to_text(optimizer) << ", " << size << ", clip " << clip;
        }
      }
    }
  }
}

// The rate is that of a job's step, where the step is the mass before the update in full masses.
TEST(TrialStep, TheRateFollowsTheMass) {
  for (const bool cosine : {false, true}) {
    StepSetting setting = setting_of(TrialOptimizer::Sgd);
    setting.schedule = {4, cosine, 0.1, 20};
    OptimizerSettings job;
    job.learning_rate = setting.rate;
    job.warm_up_steps = 4;
    job.schedule = cosine ? "cosine" : "constant";
    job.minimum_rate = 0.1;
    Random random(5);
    std::vector<float> plain = random_vector(random);
    std::vector<float> parameters = plain;
    TrialStep step(setting, kSize);
    double first = 0, last = 0;
    for (int i = 0; i < 60; ++i) {
      const std::vector<float> sum = random_vector(random);
      const int64_t mass = 1 + random.below(8);
      last = learning_rate(job, share_of(step.state().before, Mass{8}), 20);
      if (i == 0) first = last;
      for (size_t k = 0; k < kSize; ++k) plain[k] -= static_cast<float>(last / 8) * sum[k];
      step.take(parameters, sum, {mass}, {8});
      ASSERT_EQ(parameters, plain) << i;
    }
    EXPECT_EQ(first, setting.rate / 4);
    EXPECT_GE(step.state().before, (Mass{8 * 20})) << "the schedule has come to its end";
    EXPECT_NEAR(last, cosine ? setting.rate / 10 : setting.rate, 1e-12);
  }
}

// Elements do not depend on each other: those with weight decay have the bits of a step where all
// decay, the others those of a step where none does.
TEST(TrialStep, WeightDecayIsForTheFirstElements) {
  constexpr size_t kMany = 3000;
  for (const TrialOptimizer optimizer : kAll) {
    for (const size_t decayed : {1, 1024, 1500, 2999}) {
      Random random(6);
      StepSetting setting = setting_of(optimizer);
      setting.weight_decay = 0.1;
      setting.adam.weight_decay = 0.1;
      std::vector<float> all = random_vector(random, kMany), none = all, some = all;
      TrialStep of_all(setting, kMany);
      setting.decayed = 0;
      TrialStep of_none(setting, kMany);
      setting.decayed = static_cast<int64_t>(decayed);
      TrialStep of_some(setting, kMany);
      for (int i = 0; i < 4; ++i) {
        const std::vector<float> sum = random_vector(random, kMany);
        const int64_t mass = 1 + random.below(8);
        of_all.take(all, sum, {mass}, {8});
        of_none.take(none, sum, {mass}, {8});
        of_some.take(some, sum, {mass}, {8});
      }
      for (size_t k = 0; k < kMany; ++k) {
        ASSERT_EQ(some[k], (k < decayed ? all : none)[k]) << to_text(optimizer) << ", " << k;
      }
      EXPECT_NE(all, none) << to_text(optimizer);
    }
  }
}

// Two samples that have the same gradient are as good as one when the full mass is twice as large:
// bit for bit, since all factors are powers of two.
TEST(TrialStep, TheUnitOfMassDoesNotMatter) {
  for (const TrialOptimizer optimizer : kAll) {
    Random random(2);
    std::vector<float> one = random_vector(random);
    std::vector<float> two = one;
    TrialStep first(setting_of(optimizer, 0.5), kSize), second(setting_of(optimizer, 0.5), kSize);
    for (int i = 0; i < 50; ++i) {
      const std::vector<float> sum = random_vector(random);
      const int64_t mass = 1 + random.below(8);
      first.take(one, sum, {mass}, {8});
      second.take(two, times(2, sum), {2 * mass}, {16});
      ASSERT_EQ(one, two) << to_text(optimizer) << " " << i;
    }
  }
}

// A gradient that is too long is taken as one of the longest length in the same direction.
TEST(TrialStep, LongGradientsAreClipped) {
  for (const TrialOptimizer optimizer : kAll) {
    Random random(3);
    const std::vector<float> start = random_vector(random);
    std::vector<float> clipped = start, plain = start, unclipped = start;
    TrialStep with(setting_of(optimizer, 0.25), kSize), without(setting_of(optimizer), kSize);
    TrialStep never(setting_of(optimizer), kSize);
    for (int i = 0; i < 20; ++i) {
      const std::vector<float> sum = random_vector(random);
      const int64_t mass = 1 + random.below(8);
      const double norm = std::sqrt(squared_norm(sum)) / static_cast<double>(mass);
      const auto down = static_cast<float>(0.25 / norm);
      with.take(clipped, times(4 * down, sum), {mass}, {8});  // four times as long as allowed
      without.take(plain, times(down, sum), {mass}, {8});
      never.take(unclipped, times(4 * down, sum), {mass}, {8});
    }
    double differs = 0;
    for (size_t k = 0; k < kSize; ++k) {
      EXPECT_NEAR(clipped[k], plain[k], 1e-4) << to_text(optimizer);
      differs += std::abs(double{unclipped[k]} - double{plain[k]});
    }
    // AdamW's steps do not depend on the length of gradients.
    if (optimizer != TrialOptimizer::AdamW) {
      EXPECT_GT(differs, 0.01) << to_text(optimizer);
    }
  }
}

}  // namespace
}  // namespace tenuto
