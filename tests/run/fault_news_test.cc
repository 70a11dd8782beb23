// When hogs are to begin and to end, as the coordinator tells the launcher.
#include "run/fault_news.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenuto {
namespace {

Fault hog(int64_t at, int64_t until, double for_ms) {
  Fault fault;
  fault.kind = "cpu-hog";
  fault.worker = "1";
  fault.threads = 2;
  fault.at_step = at;
  fault.until_step = until;
  fault.for_ms = for_ms;
  return fault;
}

// A fault that the workers apply themselves.
Fault slow() {
  Fault fault;
  fault.kind = "slow-worker";
  fault.worker = "0";
  fault.speed = 0.5;
  fault.at_step = 3;
  return fault;
}

TEST(FaultNews, HogsBeginAndEndOnce) {
  const std::vector<Fault> faults = {slow(), hog(3, 5, 0), hog(4, -1, 100)};
  FaultAnnouncer announcer(faults, 10);
  EXPECT_TRUE(announcer.advance(0).empty());
  const std::vector<FaultNews> third = announcer.advance(3);
  ASSERT_EQ(third.size(), 2u);
  EXPECT_EQ(third[0].hog, -1);
  EXPECT_EQ(third[1].hog, 1);
  EXPECT_FALSE(third[1].ends);
  EXPECT_EQ(third[1].sentence,
            "injected fault: from step 3 on a hog of 2 threads computes on the host of worker 1");
  // Several steps at once, as with server shards.
  const std::vector<FaultNews> later = announcer.advance(7);
  ASSERT_EQ(later.size(), 2u);
  EXPECT_EQ(later[0].hog, 2);
  EXPECT_FALSE(later[0].ends);
  EXPECT_EQ(
      later[0].sentence,
      "injected fault: in step 4 a hog of 2 threads computes on the host of worker 1 for 100 ms");
  EXPECT_EQ(later[1].hog, 1);
  EXPECT_TRUE(later[1].ends);
  EXPECT_TRUE(announcer.advance(9).empty());
}

TEST(FaultNews, ARunThatIsResumedStartsWhatIsInForce) {
  const std::vector<Fault> faults = {hog(3, 8, 0), hog(3, -1, 100), hog(2, 4, 0)};
  FaultAnnouncer announcer(faults, 10);
  const std::vector<FaultNews> first = announcer.advance(5);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].hog, 0);
}

TEST(FaultNews, ANewCoordinatorOnlyEndsThem) {
  const std::vector<Fault> faults = {hog(3, 8, 0)};
  FaultAnnouncer announcer(faults, 10);
  announcer.take_up(5);
  EXPECT_TRUE(announcer.advance(6).empty());
  const std::vector<FaultNews> end = announcer.advance(8);
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].hog, 0);
  EXPECT_TRUE(end[0].ends);
}

}  // namespace
}  // namespace tenuto
