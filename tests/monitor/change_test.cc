#include "monitor/change.h"

#include <gtest/gtest.h>

#include <cmath>

#include "monitor/series.h"

namespace tenuto {
namespace {

Reading reading(int64_t at, double value) { return {at, value, {2 * value, 0, 0, 0}}; }

TEST(ChangeSeries, ReportsAChangeAtItsThirdReading) {
  ChangeSeries series;
  for (int64_t at = 0; at < 40; ++at) {
    EXPECT_FALSE(series.add(reading(at, at % 2 == 0 ? 1.00e6 : 1.02e6), 0));
  }
  EXPECT_FALSE(series.add(reading(40, 1.2e6), 0));
  EXPECT_TRUE(series.kept_back());
  EXPECT_FALSE(series.add(reading(41, 1.2e6), 0));
  const auto change = series.add(reading(42, 1.2e6), 0);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->after.since, 40);
  EXPECT_EQ(change->after.readings, 3);
  EXPECT_EQ(change->before.since, 0);
  EXPECT_EQ(change->found, 42);
  EXPECT_NEAR(change->before.value, 1.01e6, 1e3);
  EXPECT_NEAR(change->after.value, 1.2e6, 1e3);
  EXPECT_NEAR(change->before.beside[0], 2.02e6, 2e3);
  EXPECT_NEAR(change->after.beside[0], 2.4e6, 1e-3);
  EXPECT_GE(change->sure, 0.99);
  EXPECT_FALSE(series.add(reading(43, 1.2e6), 0)) << "told once";
}

TEST(ChangeSeries, ForgetsSpikesBeforeAndWithinAStep) {
  ChangeSeries series;
  int64_t at = 0;
  for (; at < 30; ++at) EXPECT_FALSE(series.add(reading(at, 1e6), 0));
  for (const double value : {9e6, 1e6, 1e6, 5e6, 7e6, 1e6, 1e6}) {
    EXPECT_FALSE(series.add(reading(at++, value), 0));
  }
  EXPECT_NEAR(series.level().value, 1e6, 1);
  EXPECT_FALSE(series.add(reading(at++, 8e6), 0));  // a spike right before the step
  const int64_t step = at;
  EXPECT_FALSE(series.add(reading(at++, 1.3e6), 0));
  EXPECT_FALSE(series.add(reading(at++, 1.3e6), 0));
  const auto change = series.add(reading(at++, 1.3e6), 0);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->after.since, step);
}

TEST(ChangeSeries, SmallDifferencesAreTheSame) {
  for (const bool by_floor : {false, true}) {
    ChangeSeries series;
    for (int64_t at = 0; at < 30; ++at) {
      EXPECT_FALSE(series.add(reading(at, 1e6), by_floor ? 0.6e6 : 0));
    }
    for (int64_t at = 30; at < 60; ++at) {
      EXPECT_FALSE(series.add(reading(at, by_floor ? 1.5e6 : 1.08e6), by_floor ? 0.6e6 : 0));
    }
    EXPECT_NEAR(series.level().value, by_floor ? 1.5e6 : 1.08e6, 1e3) << "but it is followed";
  }
}

TEST(ChangeSeries, AcceptsZeroAndNegativeValues) {
  ChangeSeries series;
  for (int64_t at = 0; at < 20; ++at) EXPECT_FALSE(series.add(reading(at, at % 2 ? 0 : -5), 10));
  EXPECT_NEAR(series.level().value, 0, 1e-6);
  series.add(reading(20, 1e9), 10);
  series.add(reading(21, 1e9), 10);
  const auto change = series.add(reading(22, 1e9), 10);
  ASSERT_TRUE(change);
  EXPECT_NEAR(change->before.value, 0, 1e-6);
  EXPECT_NEAR(change->after.value, 1e9, 1);
}

// If a series becomes noisier, the new spread is found within some readings.
TEST(ChangeSeries, LearnsANoisierSeries) {
  ChangeSeries series;
  Random random(3);
  int64_t at = 0;
  for (; at < 40; ++at) series.add(reading(at, 1e6 * std::exp(0.01 * normal(random))), 0);
  for (; at < 240; ++at) {
    const auto change = series.add(reading(at, 1e6 * std::exp(0.4 * normal(random))), 0);
    EXPECT_FALSE(change && at >= 120) << at;
  }
  EXPECT_GT(series.spread(), 0.1);
}

TEST(ChangeSeries, CopiesAreIndependentAndEqual) {
  ChangeSeries one;
  for (int64_t at = 0; at < 30; ++at) one.add(reading(at, 1e6), 0);
  ChangeSeries two = one;
  for (int64_t at = 30; at < 32; ++at) {
    one.add(reading(at, 2e6), 0);
    two.add(reading(at, 2e6), 0);
  }
  const auto left = one.add(reading(32, 2e6), 0);
  EXPECT_TRUE(two.kept_back());
  const auto right = two.add(reading(32, 2e6), 0);
  ASSERT_TRUE(left && right);
  EXPECT_EQ(left->sure, right->sure);
  EXPECT_EQ(left->after.value, right->after.value);
}

}  // namespace
}  // namespace tenuto
