// Runs in which it is known what age costs, and what the estimate makes of their losses.
#include "sync/kappa_estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

constexpr int32_t kReplicas = 8;
constexpr int kGradients = 16;  // of a window
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A run of eight replicas. Its loss falls along an exponential curve of gradients of age zero.
struct Course {
  double kappa = 2;                          // the true one
  double noise = 0.001;                      // the most by which a loss is off the curve
  double slope = 0.001;                      // at the begin, of a gradient of age zero
  std::vector<double> ages = {2.5, 3.5, 7};  // one after the other, each for 3 to 9 windows
  uint64_t seed = 1;
  int windows = 8 * static_cast<int>(KappaEstimate::kSegment);
  int spike = -1;                 // the window in which one loss is higher by 1000
  std::vector<double> also = {};  // further losses, beside each third one
};

void follow(const Course& course, KappaEstimate& estimate) {
  constexpr double kBend = 4000;  // gradients after which the slope has fallen by the factor e
  Random random(course.seed);
  const auto count = static_cast<int64_t>(course.ages.size());
  double worth = 0;  // gradients of age zero so far
  int64_t age_index = 0, left = 0;
  for (int window = 0; window < course.windows; ++window) {
    if (left == 0) {
      if (count > 1) age_index = (age_index + 1 + random.below(count - 1)) % count;
      left = 3 + random.below(7);
    }
    --left;
    const double age = course.ages[static_cast<size_t>(age_index)];
    const double own = 1 / (1 + course.kappa * age / kReplicas);
    for (int i = 0; i < kGradients; ++i) {
      double loss = 1 + course.slope * kBend * std::exp(-(worth + own / 2) / kBend);
      loss += course.noise * (2 * random.uniform() - 1);
      if (window == course.spike && i == 5) loss += 1000;
      estimate.add_loss(1, loss);
      if (i % 3 == 0) {
        for (const double one : course.also) estimate.add_loss(1, one);
      }
      estimate.add_applied(1, age);
      worth += own;
    }
  }
}

double found(const Course& course, double prior) {
  KappaEstimate estimate(prior, kReplicas);
  follow(course, estimate);
  return estimate.kappa();
}

// 1 + kappa, what a gradient of age W costs, is found to a factor of 1.25.
void expect_found(double kappa, double truth) {
  EXPECT_LE(std::abs(std::log1p(kappa) - std::log1p(truth)), std::log(1.25))
      << "found " << kappa << " and not " << truth;
}

TEST(KappaEstimateTest, TheTrueOneIsFound) {
  struct Case {
    double truth, prior;
  };
  for (const Case& one : std::vector<Case>{{0, 2}, {0.5, 2}, {0.5, 0}, {2, 1}, {6, 2}}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(cat("kappa ", one.truth, ", prior ", one.prior, ", seed ", seed));
      Course course;
      course.kappa = one.truth;
      course.seed = seed;
      expect_found(found(course, one.prior), one.truth);
    }
  }
}

TEST(KappaEstimateTest, AnAgeThatNeverChangesLeavesThePrior) {
  for (const double age : {0.0, 3.5, 7.0}) {
    Course course;
    course.kappa = 0.5;
    course.ages = {age};
    EXPECT_EQ(found(course, 2), 2) << "age " << age;
  }
}

// Windows are over in the same way, and a few of them are no segment yet.
TEST(KappaEstimateTest, AFewWindowsLeaveThePrior) {
  Course course;
  course.kappa = 0;
  course.windows = static_cast<int>(KappaEstimate::kLeastWindows) - 1;
  EXPECT_EQ(found(course, 2), 2);
}

TEST(KappaEstimateTest, NoiseLeavesThePriorNearlyAsItIs) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Course course;
    course.kappa = 0;
    course.noise = 1;
    course.slope = 1e-5;
    course.seed = seed;
    const double kappa = found(course, 2);
    EXPECT_FALSE(has_kappa_changed(2, kappa)) << "seed " << seed << " has " << kappa;
  }
}

// There is no progress that could be compared.
TEST(KappaEstimateTest, ALossThatRisesLeavesThePrior) {
  Course course;
  course.noise = 0;
  course.slope = -0.001;
  EXPECT_EQ(found(course, 2), 2);
}

TEST(KappaEstimateTest, LossesThatAreNotFiniteAreIgnored) {
  Course course;
  course.kappa = 0.5;
  const double without = found(course, 2);
  course.also = {std::nan(""), kInfinity, -kInfinity};
  EXPECT_EQ(found(course, 2), without);
  EXPECT_NE(without, 2);
}

TEST(KappaEstimateTest, WithoutUsableLossesThePriorStays) {
  for (const double loss : {std::nan(""), kInfinity, 1e308, 1e200}) {
    KappaEstimate estimate(2, kReplicas);
    for (int i = 0; i < 100 * kGradients; ++i) {
      // Lower and lower ones, as far as they are numbers.
      estimate.add_loss(1, loss * (1 - 1e-4 * i));
      estimate.add_applied(1, i / 100 % 2 == 0 ? 3.5 : 7);
    }
    EXPECT_EQ(estimate.kappa(), 2) << "losses of " << loss;
  }
}

TEST(KappaEstimateTest, OneWrongLossIsNotBelieved) {
  Course course;
  course.kappa = 0.5;
  course.spike = 100;
  expect_found(found(course, 2), 0.5);
}

TEST(KappaEstimateTest, ItIsBounded) {
  Course course;
  course.noise = 0;
  course.kappa = 1000;
  EXPECT_NEAR(found(course, 2), KappaEstimate(2, kReplicas).most(), 1e-9);
  // Old gradients are worth more than fresh ones.
  course.kappa = -0.5;
  EXPECT_EQ(found(course, 2), 0);
  EXPECT_EQ(KappaEstimate(2, kReplicas).most(), 8);
  EXPECT_EQ(KappaEstimate(0.3, kReplicas).most(), 2);
}

// As when the learning rate falls.
TEST(KappaEstimateTest, ItFollowsAKappaThatChanges) {
  KappaEstimate estimate(2, kReplicas);
  Course course;
  follow(course, estimate);
  expect_found(estimate.kappa(), 2);
  course.kappa = 0.3;
  follow(course, estimate);
  expect_found(estimate.kappa(), 0.3);
}

TEST(KappaEstimateTest, EqualCallsHaveEqualAnswers) {
  Course course;
  course.noise = 0.1;
  EXPECT_EQ(found(course, 2), found(course, 2));
}

TEST(KappaEstimateTest, WindowsHaveTwoRoundsOfTheReplicas) {
  EXPECT_EQ(KappaEstimate(2, 1).window_gradients(), 8);
  EXPECT_EQ(KappaEstimate(2, 4).window_gradients(), 8);
  EXPECT_EQ(KappaEstimate(2, kReplicas).window_gradients(), kGradients);
}

TEST(KappaChange, IsMoreThanAFifth) {
  EXPECT_FALSE(has_kappa_changed(2, 2));
  EXPECT_FALSE(has_kappa_changed(2, 2.39));
  EXPECT_TRUE(has_kappa_changed(2, 2.41));
  EXPECT_FALSE(has_kappa_changed(2, 1.61));
  EXPECT_TRUE(has_kappa_changed(2, 1.59));
  EXPECT_FALSE(has_kappa_changed(0, 0.04));
  EXPECT_TRUE(has_kappa_changed(0, 0.06));
}

TEST(KappaChange, IsASentence) {
  EXPECT_EQ(kappa_sentence(2, 1.25),
            "the age of gradients costs less than was thought: kappa is 1.25, and was 2.00");
  EXPECT_EQ(kappa_sentence(0.5, 1),
            "the age of gradients costs more than was thought: kappa is 1.00, and was 0.50");
}

}  // namespace
}  // namespace tenuto
