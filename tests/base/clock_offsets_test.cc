// Clocks that were compared pair by pair.
#include "base/clock_offsets.h"

#include <gtest/gtest.h>

namespace tenuto {
namespace {

TEST(ClockOffsets, AlongChainsFromTheFirstClock) {
  const ClockOffsets found = join_clocks(5, {{2, 1, -3}, {0, 2, 10}, {3, 4, 1}});
  EXPECT_EQ(found.ahead, (std::vector<double>{0, 7, 10, 0, 0}));
  EXPECT_EQ(found.joined, (std::vector<bool>{true, true, true, false, false}));
}

// A direct comparison counts more than a chain of two.
TEST(ClockOffsets, TheShortestChainCounts) {
  const ClockOffsets found = join_clocks(3, {{0, 1, 5}, {1, 2, 5}, {0, 2, 9}});
  EXPECT_EQ(found.ahead, (std::vector<double>{0, 5, 9}));
}

}  // namespace
}  // namespace tenuto
