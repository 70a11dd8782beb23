#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/bisect.h"
#include "base/clock.h"
#include "base/cut_text.h"
#include "base/mailbox.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/sentence.h"
#include "base/text.h"
#include "base/unit.h"

namespace tenuto {
namespace {

TEST(Bisect, FindsTheFirstAndTheLast) {
  for (int edge = -1; edge <= 12; ++edge) {
    const int first = first_of(0, 11, [&](int number) { return number >= edge; });
    EXPECT_EQ(first, std::clamp(edge, 0, 11)) << edge;
    const int last = last_of(0, 10, [&](int number) { return number < edge; });
    EXPECT_EQ(last, std::clamp(edge - 1, 0, 10)) << edge;
  }
}

// A text is cut between two characters, wherever the limit is.
TEST(CutText, KeepsWholeCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001f600z";  // 1, 2, 3, 4 and 1 bytes
  const std::vector<size_t> ends = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (size_t most = 0; most < ends.size(); ++most) {
    EXPECT_EQ(cut_of(text, most), ends[most]) << most;
  }
  EXPECT_EQ(shortened(text, 11), text);
  EXPECT_EQ(shortened(text, 10), "a\u00e9\u20ac...");
  EXPECT_EQ(shortened(text, 8), "a\u00e9...");
  // Text that is not UTF-8 is cut, too.
  EXPECT_EQ(cut_of(std::string(20, '\x80'), 9), 9u);
  std::string letters;
  while (letters.size() < 300) letters += "\u20ac";
  EXPECT_EQ(excerpt("x" + letters), "x" + letters.substr(0, 57) + "...");
  EXPECT_EQ(told(letters), letters.substr(0, 78) + "..." + letters.substr(letters.size() - 42));
}

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

// Sleeps in the mailbox instead of working for its reader.
class SleepingDriver : public MailboxDriver {
 public:
  explicit SleepingDriver(QueueMailbox& mailbox) : mailbox_(mailbox) {}
  void drive(Duration until) override { mailbox_.sleep(until); }
  void wake() override {}

 private:
  QueueMailbox& mailbox_;
};

Done done_of(uint64_t ticket) {
  Done done;
  done.ticket = Ticket{ticket};
  return done;
}

// Reports that are due later come in the order of their moments and never before them, behind those
// that are there already, and a wait that ends earlier does not wait for them.
TEST(Mailbox, PostsAReportAtItsMoment) {
  using std::chrono::hours, std::chrono::microseconds, std::chrono::milliseconds;
  for (const bool driven : {false, true}) {
    QueueMailbox mailbox;
    SleepingDriver driver(mailbox);
    if (driven) mailbox.set_driver(&driver);
    const Duration begin = monotonic_clock().now();
    std::vector<Duration> taken(4);
    const auto post_at = [&](uint64_t ticket, Duration moment, Duration awake) {
      mailbox.post_at(moment, awake, [&taken, ticket](Duration now) {
        taken[ticket] = now;
        return done_of(ticket);
      });
    };
    post_at(0, begin + hours(1), microseconds(100));
    post_at(3, begin + milliseconds(20), microseconds(100));
    post_at(2, begin + milliseconds(10), {});
    post_at(1, begin, microseconds(100));
    mailbox.post(done_of(9));
    for (const uint64_t ticket : {9, 1, 2, 3}) {
      const Result<Done> next = mailbox.wait(hours(2));
      ASSERT_TRUE(next.ok());
      EXPECT_EQ(next.value().ticket, Ticket{ticket});
    }
    EXPECT_GE(taken[2], begin + milliseconds(10));
    EXPECT_GE(taken[3], begin + milliseconds(20));
    EXPECT_EQ(mailbox.wait(milliseconds(1)).error().code, Code::Timeout);
    EXPECT_EQ(mailbox.wait({}).error().code, Code::Timeout);
    std::thread poster([&] { mailbox.post(done_of(9)); });
    EXPECT_EQ(mailbox.wait(hours(2)).value().ticket, Ticket{9});  // wakes up for others
    poster.join();
    mailbox.set_driver(nullptr);
  }
}

}  // namespace
}  // namespace tenuto
