#include <gtest/gtest.h>

#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/text.h"
#include "base/unit.h"

namespace tenuto {
namespace {

// Known answers from the paper's reference implementation (Random123 kat_vectors).
TEST(Philox, KnownAnswers) {
  const std::array<uint32_t, 4> zero{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), zero);
  const uint32_t all = 0xffffffff;
  const std::array<uint32_t, 4> ones{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(philox({all, all}, {all, all, all, all}), ones);
}

TEST(Random, SameSeedSameSequenceInBounds) {
  Random left(7), right(7);
  for (int i = 0; i < 1000; ++i) {
    const int64_t number = left.below(10);
    EXPECT_EQ(number, right.below(10));
    EXPECT_GE(number, 0);
    EXPECT_LT(number, 10);
  }
}

TEST(Text, CatAndNearest) {
  EXPECT_EQ(cat("worker ", WorkerId{3}, " at ", 0.5, ' ', true), "worker 3 at 0.5 true");
  const std::string_view names[] = {"stages", "pipelines", "micros"};
  EXPECT_EQ(nearest("stagse", names, 3), "stages");
  EXPECT_EQ(nearest("banana", names, 3), "");
}

TEST(Unit, TransferTimeRoundsUp) {
  EXPECT_EQ(transfer_time({1000}, 1e9).count(), 1000);
  EXPECT_EQ(transfer_time({1}, 3e9).count(), 1);
  EXPECT_EQ(transfer_time({1000}, 0).count(), 0);
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  std::vector<Duration> times;
  EXPECT_EQ(quantile(times, 0.5).count(), 0);
  for (int64_t time : {40, 10, 30, 21}) times.emplace_back(time);
  EXPECT_EQ(quantile(times, 0).count(), 10);
  EXPECT_EQ(quantile(times, 0.5).count(), 25);
  EXPECT_EQ(quantile(times, 0.75).count(), 32);
  EXPECT_EQ(quantile(times, 1).count(), 40);
  times.resize(1);
  EXPECT_EQ(quantile(times, 0.75), times[0]);
  std::vector<Duration> far = {Duration(int64_t{1} << 62), Duration((int64_t{1} << 62) + 10)};
  EXPECT_EQ(quantile(far, 0.5).count(), (int64_t{1} << 62) + 5);
}

TEST(Mailbox, KeepsOrderAcrossThreadsAndTimesOut) {
  QueueMailbox mailbox;
  EXPECT_EQ(mailbox.wait(std::chrono::milliseconds(1)).error().code, Code::Timeout);
  std::thread poster([&] {
    for (uint64_t i = 1; i <= 100; ++i) {
      Done done;
      done.ticket = Ticket{i};
      mailbox.post(done);
    }
  });
  for (uint64_t i = 1; i <= 100; ++i) {
    EXPECT_EQ(mailbox.wait(std::chrono::seconds(5)).value().ticket, Ticket{i});
  }
  poster.join();
}

}  // namespace
}  // namespace tenuto
