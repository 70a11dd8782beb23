// Ratios of means over paired seeds.
#include "sync/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

TEST(PairedRatio, ByHand) {
  const std::vector<double> base = {1, 2, 3}, twice = {2, 4, 6}, other = {2, 5, 5};
  EXPECT_EQ(paired_ratio(twice, base).value, 2);
  EXPECT_EQ(paired_ratio(twice, base).error, 0);  // the same ratio with each seed
  EXPECT_EQ(paired_ratio(base, base).value, 1);
  EXPECT_EQ(paired_ratio(base, base).error, 0);
  // The rests are 0, 1 and -1.
  EXPECT_EQ(paired_ratio(other, base).value, 2);
  EXPECT_NEAR(paired_ratio(other, base).error, std::sqrt(2.0 / 2 / 3) / 2, 1e-12);
  const std::vector<double> three = {3}, one = {1};
  EXPECT_EQ(paired_ratio(three, one).value, 3);
  EXPECT_EQ(paired_ratio(three, one).error, 0);
}

// The error is the deviation of the ratio over many repetitions, and luck that both share is none.
TEST(PairedRatio, ErrorIsTheDeviationOfTheRatio) {
  constexpr int kRounds = 2000, kPairs = 20;
  Random random(3);
  double sum = 0, squares = 0, errors = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> of, to;
    for (int i = 0; i < kPairs; ++i) {
      const double shared = 5 + 10 * random.uniform();
      const double own = random.uniform() - 0.5;
      to.push_back(shared);
      of.push_back(1.5 * shared + own);
    }
    const PairedRatio ratio = paired_ratio(of, to);
    sum += ratio.value;
    squares += ratio.value * ratio.value;
    errors += ratio.error;
  }
  const double mean = sum / kRounds;
  const double deviation = std::sqrt(squares / kRounds - mean * mean);
  EXPECT_NEAR(mean, 1.5, 0.001);
  EXPECT_NEAR(errors / kRounds, deviation, 0.1 * deviation);
}

}  // namespace
}  // namespace tenuto
