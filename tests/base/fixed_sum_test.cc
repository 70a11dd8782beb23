#include "base/fixed_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

using Floats = std::vector<float>;

float sum_of(const Floats& terms) {
  FixedSum sum;
  int64_t refused = 0;
  for (const float term : terms) add_to({&sum, 1}, {&term, 1}, refused);
  EXPECT_EQ(refused, 0);
  float total = 0;
  read({&sum, 1}, {&total, 1});
  return total;
}

// Numbers of either sign, of magnitudes from 2^-spread to 2^spread.
Floats draw(size_t count, double spread, Random& random) {
  Floats terms(count);
  for (float& term : terms) {
    const double size = std::exp2(spread * (2 * random.uniform() - 1));
    term = static_cast<float>((2 * random.uniform() - 1) * size);
  }
  return terms;
}

TEST(FixedSum, HasTheSameBitsInEveryOrderAndDivision) {
  Random random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const auto numbers = static_cast<size_t>(1 + random.below(40));
    const auto count = static_cast<size_t>(1 + random.below(64));
    std::vector<Floats> terms;
    for (size_t t = 0; t < count; ++t) terms.push_back(draw(numbers, 20, random));
    Floats first;
    for (int way = 0; way < 4; ++way) {
      const auto workers = static_cast<size_t>(1 + random.below(5));
      std::vector<std::vector<FixedSum>> sums(workers, std::vector<FixedSum>(numbers));
      int64_t refused = 0;
      for (size_t left = count; left > 0; --left) {
        const auto pick = static_cast<size_t>(random.below(static_cast<int64_t>(left)));
        add_to(sums[static_cast<size_t>(random.below(static_cast<int64_t>(workers)))], terms[pick],
               refused);
        std::swap(terms[pick], terms[left - 1]);
      }
      for (size_t w = 1; w < workers; ++w) {
        for (size_t i = 0; i < numbers; ++i) {
          sums[0][i].high += sums[w][i].high;
          sums[0][i].low += sums[w][i].low;
        }
      }
      Floats total(numbers);
      read(sums[0], total);
      if (first.empty()) first = total;
      EXPECT_EQ(refused, 0);
      EXPECT_EQ(total, first);
    }
  }
}

TEST(FixedSum, IsTheExactSumRoundedOnce) {
  Random random(5);
  for (int trial = 0; trial < 2000; ++trial) {
    const Floats terms = draw(static_cast<size_t>(1 + random.below(200)), 20, random);
    double sizes = 0;
    for (const float term : terms) sizes += std::abs(double{term});
    long double reference = 0;
    for (const float term : terms) reference += term;
    const double error = std::abs(static_cast<double>(sum_of(terms) - reference));
    const double rounding = std::abs(static_cast<double>(reference)) * 0x1p-24;
    EXPECT_LE(error, rounding + sizes * 0x1p-50 + static_cast<double>(terms.size()) * 0x1p-75);
  }
}

TEST(FixedSum, LosesNothingWhereSumsCancel) {
  EXPECT_EQ(sum_of({4e6F, 1e-10F, -4e6F}), 1e-10F);
  EXPECT_EQ(sum_of({1.0F, 0x1p-40F, -1.0F, -0x1p-40F}), 0.0F);
  EXPECT_EQ(sum_of({-0.0F}), 0.0F);
  EXPECT_EQ(sum_of({0x1p-74F}), 0x1p-74F);
  EXPECT_EQ(sum_of({0x1p-76F}), 0.0F);
  EXPECT_EQ(sum_of({1.0F, 0x1p-24F}), 1.0F);                       // a tie, to even
  EXPECT_EQ(sum_of({1.0F, 0x1p-24F, 0x1p-70F}), 1.0F + 0x1p-23F);  // just above a tie
}

TEST(FixedSum, HoldsAsManyTermsAsItSays) {
  for (const float size : {std::nextafter(0x1p23F, 0.0F), 0x1.fffffep-26F}) {
    for (const float sign : {1.0F, -1.0F}) {
      EXPECT_EQ(sum_of(Floats(kFixedTerms, sign * size)),
                static_cast<float>(double{sign} * double{size} * kFixedTerms));
    }
  }
}

TEST(FixedSum, CountsNumbersOutsideItsRange) {
  const Floats terms = {0x1p23F, -0x1p23F, std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN(), 1.5F};
  std::vector<FixedSum> sums(terms.size());
  int64_t refused = 0;
  add_to(sums, terms, refused);
  EXPECT_EQ(refused, 4);
  Floats total(terms.size());
  read(sums, total);
  EXPECT_EQ(total, (Floats{0, 0, 0, 0, 1.5F}));
}

}  // namespace
}  // namespace tenuto
