// How many cores processes use, and what a network carries for others, from what the kernel has
// counted.
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

TEST(ForeignTraffic, WhatTheJobsDidNotAnnounceIsForeign) {
  ForeignTraffic foreign;
  const HostAmounts granted = {4000, 2'000'000, 500'000};
  DeviceBytes bytes{1'000'000'000, 7'000'000'000};
  EXPECT_EQ(foreign.take(bytes, granted, seconds(1)), HostAmounts{}) << "no rate is known";
  HostAmounts last{};
  for (int second = 2; second < 40; ++second) {
    bytes.sent += 5'000'000;
    bytes.received += 400'000;
    last = foreign.take(bytes, granted, seconds(second));
  }
  EXPECT_EQ(last[0], 0);
  EXPECT_NEAR(static_cast<double>(last[1]), 3e6, 1e4);
  EXPECT_EQ(last[2], 0) << "the jobs may receive more than that";
  // A device that is gone, or has begun anew.
  EXPECT_EQ(foreign.take(std::nullopt, granted, seconds(40)), HostAmounts{});
  foreign.take(DeviceBytes{0, 0}, {}, seconds(41));
  EXPECT_LT(foreign.take(DeviceBytes{0, 0}, {}, seconds(42))[1], 5'000'000);
}

TEST(SendingCheck, ALimitWithoutEffectIsToldOnce) {
  SendingCheck check;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(check.look(2e6, 1e6), "");
  EXPECT_EQ(check.look(1.1e6, 1e6), "") << "it is near";
  for (int i = 0; i < 9; ++i) EXPECT_EQ(check.look(2e6, 1e6), "");
  EXPECT_NE(check.look(2e6, 1e6).find("the job sends 2.0 MB/s, and the ledger allows it 1.0 MB/s"),
            std::string::npos);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(check.look(2e6, 1e6), "");
  SendingCheck unlimited;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(unlimited.look(2e6, 0), "");
}

}  // namespace
}  // namespace tenuto
