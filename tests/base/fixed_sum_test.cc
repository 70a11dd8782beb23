// Sums that do not depend on the order: bit for bit under any division of the terms.
#include "base/fixed_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

constexpr size_t kCount = 2 * kFixedBlock + 17;
constexpr int32_t kTerms = 24;

using Terms = std::vector<std::vector<float>>;  // terms[m][i]

// Gradients spread over e^(+-spread), some of them zero.
Terms draw_terms(uint64_t seed, double spread) {
  Random random(seed);
  Terms terms(kTerms, std::vector<float>(kCount));
  for (auto& term : terms) {
    for (float& number : term) {
      const double size = std::exp(spread * (2 * random.uniform() - 1));
      number = static_cast<float>(random.below(50) == 0 ? 0 : size * (2 * random.uniform() - 1));
    }
  }
  return terms;
}

std::vector<int32_t> exponents_of(const Terms& terms) {
  std::vector<int32_t> exponents;
  for (size_t first = 0; first < kCount; first += kFixedBlock) {
    float largest = 0;
    for (const auto& term : terms) {
      for (size_t i = first; i < std::min(first + kFixedBlock, kCount); ++i) {
        largest = std::max(largest, std::abs(term[i]));
      }
    }
    exponents.push_back(make_exponent(largest, kTerms, 0));
  }
  return exponents;
}

// The sum when each term goes to a worker drawn by the seed, in a drawn order, and the workers'
// sums are added in a drawn order.
std::vector<float> sum_of(const Terms& terms, const std::vector<int32_t>& exponents, uint64_t seed,
                          FixedSum* out = nullptr) {
  Random random(seed);
  const auto workers = static_cast<size_t>(1 + random.below(8));
  std::vector<FixedSum> sums(workers, FixedSum(kCount, kTerms, exponents));
  std::vector<size_t> order(terms.size());
  for (size_t m = 0; m < order.size(); ++m) order[m] = m;
  for (size_t m = order.size(); m > 1; --m) {
    std::swap(order[m - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(m)))]);
  }
  for (const size_t m : order) {
    sums[static_cast<size_t>(random.below(static_cast<int64_t>(workers)))].add(0, terms[m]);
  }
  while (sums.size() > 1) {
    const auto drawn = static_cast<size_t>(random.below(static_cast<int64_t>(sums.size() - 1)));
    sums[drawn].add(sums.back());
    sums.pop_back();
  }
  std::vector<float> read(kCount);
  sums.front().read(read);
  if (out != nullptr) *out = sums.front();
  return read;
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  });
}

TEST(FixedSum, TheSameBitsWhoeverAddsWhat) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Terms terms = draw_terms(seed, static_cast<double>(seed));
    const auto exponents = exponents_of(terms);
    const auto first = sum_of(terms, exponents, 1);
    for (uint64_t routing = 2; routing <= 12; ++routing) {
      EXPECT_TRUE(same_bits(first, sum_of(terms, exponents, routing))) << seed << " " << routing;
    }
  }
}

TEST(FixedSum, AsExactAsItSays) {
  const Terms terms = draw_terms(5, 2);
  const auto exponents = exponents_of(terms);
  const auto sum = sum_of(terms, exponents, 3);
  for (size_t i = 0; i < kCount; ++i) {
    long double exact = 0;
    for (const auto& term : terms) exact += term[i];
    const double units = kTerms * std::ldexp(1.0, -exponents[i / kFixedBlock] - 1);
    const double rounding = std::abs(static_cast<double>(sum[i])) * std::ldexp(1.0, -24);
    EXPECT_LE(std::abs(static_cast<double>(exact - static_cast<long double>(sum[i]))),
              units + rounding)
        << i;
  }
}

TEST(FixedSum, ASpikeNeedsTheSecondLimbAndLosesNothing) {
  Terms terms = draw_terms(6, 1);
  const auto exponents = exponents_of(terms);
  for (size_t i = 0; i < kCount; i += 97) terms[5][i] = std::ldexp(terms[5][i] + 1, 20);
  FixedSum sums(kCount, kTerms, exponents);
  const auto first = sum_of(terms, exponents, 1, &sums);
  EXPECT_EQ(sums.wide_blocks(), 2u);  // the third block is of 17 numbers
  EXPECT_FALSE(sums.overrun());
  for (uint64_t routing = 2; routing <= 12; ++routing) {
    EXPECT_TRUE(same_bits(first, sum_of(terms, exponents, routing))) << routing;
  }
  for (size_t i = 0; i < kCount; i += 97) {
    long double exact = 0;
    for (const auto& term : terms) exact += term[i];
    EXPECT_NEAR(static_cast<double>(exact), static_cast<double>(first[i]),
                std::abs(static_cast<double>(first[i])) * 1e-7);
  }
}

TEST(FixedSum, WhatIsNoNumberIsFound) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    FixedSum sum(kCount, kTerms, exponents_of(draw_terms(7, 0)));
    std::vector<float> term(kCount, 0.5f);
    term[kFixedBlock + 3] = bad;
    sum.add(0, term);
    EXPECT_TRUE(sum.overrun());
    std::vector<float> read(kCount);
    sum.read(read);
    EXPECT_EQ(read[0], 0.5f);
    EXPECT_TRUE(std::isnan(read[kFixedBlock + 3]));
  }
}

TEST(FixedSum, Exponents) {
  EXPECT_EQ(make_exponent(0, 512, 17), 17);
  EXPECT_EQ(make_exponent(std::numeric_limits<float>::infinity(), 512, 17), 17);
  EXPECT_EQ(make_exponent(1.0f, 512, 0), 62 - 9 - 8 - 1);
  EXPECT_EQ(make_exponent(std::numeric_limits<float>::denorm_min(), 1, 0), 180);
  std::vector<float> read(kCount, 1);
  FixedSum(kCount, kTerms, {0, 0, 0}).read(read);
  EXPECT_EQ(read, std::vector<float>(kCount, 0.0f));
}

}  // namespace
}  // namespace tenuto
