// The time of an update: over the keepers of a process, and over the last updates.
#include "parameter_server/apply_times.h"

#include <gtest/gtest.h>

namespace tenuto::servers {
namespace {

Version version_of(int64_t value) { return {value}; }

TEST(ApplyTimes, KeepersOfAnUpdateAddUpAndTheNewestUpdateDoesNotCount) {
  ApplyTimes times;
  EXPECT_FALSE(times.mean().has_value());
  times.add(version_of(7), Duration(10));
  times.add(version_of(7), Duration(20));
  EXPECT_FALSE(times.mean().has_value()) << "another keeper may still apply it";
  times.add(version_of(8), Duration(100));
  EXPECT_EQ(times.mean(), Duration(30));
  // A keeper that is behind the others.
  times.add(version_of(7), Duration(6));
  EXPECT_EQ(times.mean(), Duration(36));
  times.add(version_of(9), Duration(1));
  EXPECT_EQ(times.mean(), Duration(68));
}

TEST(ApplyTimes, OldUpdatesAreForgotten) {
  constexpr auto kRecent = static_cast<int64_t>(ApplyTimes::kRecent);
  ApplyTimes times;
  for (int64_t version = 0; version < kRecent; ++version) {
    times.add(version_of(version), Duration(1000));
  }
  for (int64_t version = kRecent; version < 2 * kRecent + 1; ++version) {
    times.add(version_of(version), Duration(10));
  }
  EXPECT_EQ(times.mean(), Duration(10));
  // One from long ago changes nothing.
  times.add(version_of(0), Duration(1000));
  EXPECT_EQ(times.mean(), Duration(10));
}

}  // namespace
}  // namespace tenuto::servers
