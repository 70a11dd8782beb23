// How many cores processes use, from what the kernel has counted.
#include "run/host_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenuto {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ProcessStat process(int32_t number, int64_t started, int64_t used_ms) {
  ProcessStat one;
  one.process = number;
  one.parent = 1;
  one.started = started;
  one.cpu = milliseconds(used_ms);
  return one;
}

TEST(UsedCores, OfProcessesThatComeAndGo) {
  UsedCores used;
  EXPECT_EQ(used.take({process(1, 5, 9000)}, seconds(10)), 0);
  EXPECT_DOUBLE_EQ(used.take({process(1, 5, 11'000)}, seconds(12)), 1);
  // One is new, and one has ended, whose last figures nobody knows.
  EXPECT_DOUBLE_EQ(used.take({process(1, 5, 11'500), process(2, 8, 1000)}, seconds(13)), 1.5);
  EXPECT_DOUBLE_EQ(used.take({process(2, 8, 1250)}, seconds(14)), 0.25);
  // Another process with the same number.
  EXPECT_DOUBLE_EQ(used.take({process(2, 9, 500)}, seconds(15)), 0.5);
  EXPECT_EQ(used.take({}, seconds(16)), 0);
  // A call at the same moment.
  EXPECT_EQ(used.take({process(3, 9, 500)}, seconds(16)), 0);
}

}  // namespace
}  // namespace tenuto
