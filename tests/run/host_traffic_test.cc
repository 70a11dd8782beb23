// What goes over the network of a host, from what processes report.
#include "run/host_traffic.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace tenuto {
namespace {

using std::chrono::seconds;

// Processes 0 and 1 on this host, and 2 and 3 on another one.
HostTraffic two_hosts() {
  HostTraffic traffic("a", false);
  traffic.set_processes({{{0}, "a"}, {{1}, "a"}, {{2}, "b"}, {{3}, "b"}});
  return traffic;
}

double sum_of(const std::vector<servers::SendingLimit>& limits) {
  double sum = 0;
  for (const servers::SendingLimit& one : limits) sum += one.bytes_per_second;
  return sum;
}

TEST(HostTraffic, OnlyWhatLeavesTheHostOrComesCounts) {
  HostTraffic traffic = two_hosts();
  traffic.add({0}, {{2}, 1'000'000});
  EXPECT_EQ(traffic.take(seconds(10)).sent, 0) << "nobody knows since when";
  traffic.add({0}, {{1}, 9'000'000});
  traffic.add({0}, {{2}, 4'000'000});
  traffic.add({1}, {{3}, 2'000'000});
  traffic.add({2}, {{1}, 1'000'000});
  traffic.add({3}, {{2}, 9'000'000});
  traffic.add({7}, {{8}, 9'000'000});
  const HostTraffic::Rates rates = traffic.take(seconds(12));
  EXPECT_DOUBLE_EQ(rates.sent, 3e6);
  EXPECT_DOUBLE_EQ(rates.received, 5e5);
  EXPECT_EQ(traffic.take(seconds(13)).sent, 0);
  EXPECT_EQ(traffic.take(seconds(13)).sent, 0) << "a call at the same moment";
  EXPECT_EQ(traffic.spared(), (std::vector<WorkerId>{{0}, {1}}));
}

TEST(HostTraffic, OverTheLoopbackAllIsSentAndReceivedHere) {
  HostTraffic traffic("a", true);
  traffic.set_processes({{{0}, "a"}, {{1}, "a"}});
  traffic.take(seconds(1));
  traffic.add({0}, {{1}, 3'000'000});
  traffic.add({7}, {{8}, 3'000'000});
  const HostTraffic::Rates rates = traffic.take(seconds(2));
  EXPECT_DOUBLE_EQ(rates.sent, 3e6);
  EXPECT_DOUBLE_EQ(rates.received, 3e6);
  EXPECT_TRUE(traffic.spared().empty());
}

TEST(HostTraffic, ALimitIsDividedByWhatWasSent) {
  HostTraffic traffic = two_hosts();
  const auto before = traffic.divide(1e6);
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before[0].bytes_per_second, before[1].bytes_per_second);
  EXPECT_NEAR(sum_of(before), 1e6, 2e4);
  traffic.take(seconds(1));
  for (int second = 2; second < 20; ++second) {
    traffic.add({0}, {{2}, 3'000'000});
    traffic.add({1}, {{2}, 1'000'000});
    traffic.take(seconds(second));
  }
  const auto limits = traffic.divide(1e6);
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].process, WorkerId{0});
  EXPECT_NEAR(limits[0].bytes_per_second, 7e5, 2e4);
  EXPECT_NEAR(limits[1].bytes_per_second, 3e5, 2e4);
  // One that sends nothing any more may begin again.
  for (int second = 20; second < 60; ++second) {
    traffic.add({0}, {{2}, 3'000'000});
    traffic.take(seconds(second));
  }
  EXPECT_NEAR(traffic.divide(1e6)[1].bytes_per_second, 1e5, 2e4);
  // One that has ended has no part.
  traffic.set_processes({{{0}, "a"}, {{2}, "b"}});
  const auto alone = traffic.divide(1e6);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_NEAR(alone[0].bytes_per_second, 1e6, 2e4);
}

}  // namespace
}  // namespace tenuto
