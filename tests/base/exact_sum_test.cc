// Compares sums that do not depend on the order of their terms with 128-bit integer sums.
#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

__extension__ using Wide = unsigned __int128;

// Rounds to the nearest double, ties to even, as the definition says.
double nearest(Wide number) {
  int dropped = 0;
  Wide digits = number;
  while (digits >> 53 != 0) digits >>= 1, ++dropped;
  const Wide rest = number - (digits << dropped),
             half = dropped == 0 ? 0 : Wide{1} << (dropped - 1);
  if (dropped > 0 && (rest > half || (rest == half && digits % 2 == 1))) ++digits;
  return std::ldexp(static_cast<double>(static_cast<uint64_t>(digits)), dropped);
}

TEST(ExactSum, IsTheExactSumRoundedAtEveryScale) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    const int point = static_cast<int>(random.below(500)) - 330;
    const int spread = 1 + static_cast<int>(random.below(60));
    Wide expected = 0;
    ExactSum sum;
    for (int64_t k = random.below(6); k >= 0; --k) {
      const auto digits = static_cast<uint64_t>(random.below(int64_t{1} << 53));
      const int shift = static_cast<int>(random.below(spread));
      expected += Wide{digits} << shift;
      sum.add(std::ldexp(static_cast<double>(digits), shift + point));
    }
    ASSERT_EQ(sum.value(), std::ldexp(nearest(expected), point)) << "round " << round;
  }
}

TEST(ExactSum, TheOrderDoesNotMatterAndSumsAreMonotonic) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> terms;
    for (int k = 0; k < 40; ++k) {
      const double norm = std::ldexp(random.uniform(), static_cast<int>(random.below(60)) - 30);
      terms.push_back(norm * norm);
    }
    ExactSum forth, back, halves[2];
    double before = 0;
    for (size_t k = 0; k < terms.size(); ++k) {
      forth.add(terms[k]);
      back.add(terms[terms.size() - 1 - k]);
      halves[random.below(2)].add(terms[k]);
      ASSERT_GE(forth.value(), before);
      before = forth.value();
    }
    halves[1].add(halves[0]);
    EXPECT_EQ(forth.value(), back.value());
    EXPECT_EQ(forth.value(), halves[1].value());
  }
}

TEST(ExactSum, HoldsTheSquaresOfAllSinglePrecisionNumbers) {
  ExactSum sum;
  EXPECT_EQ(sum.value(), 0);
  const double least = std::numeric_limits<float>::denorm_min();
  const double most = std::numeric_limits<float>::max();
  sum.add(least * least);
  EXPECT_EQ(sum.value(), least * least);
  for (int k = 0; k < 4; ++k) sum.add(most * most);
  EXPECT_EQ(sum.value(), 4 * (most * most));
  // A much smaller term breaks a tie.
  ExactSum tie;
  tie.add(1);
  tie.add(0x1p-53);
  EXPECT_EQ(tie.value(), 1);
  tie.add(0x1p-300);
  EXPECT_EQ(tie.value(), 1 + 0x1p-52);
}

}  // namespace
}  // namespace tenuto
