#include "transport/faulty.h"

#include <gtest/gtest.h>

#include "party.h"

namespace tenuto {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Two workers on the memory wire; worker 1 receives over a faulty link that the test pumps by hand.
class FaultyTest : public testing::Test {
 protected:
  void start(const FaultSettings& settings) {
    left_ = std::make_unique<Party>(
        [this](Hello hello, Mailbox& mailbox) {
          return make_memory_transport(network_, std::move(hello), mailbox, clock_);
        },
        hello_of(0));
    right_ = std::make_unique<Party>(
        [&](Hello hello, Mailbox& mailbox) -> std::unique_ptr<Transport> {
          auto made =
              make_faulty_transport(settings, hello.self, mailbox, clock_, FaultDrive::Pump,
                                    [&](Mailbox& gate) -> Result<std::unique_ptr<Transport>> {
                                      return make_memory_transport(network_, hello, gate, clock_);
                                    });
          CHECK(made.ok(), made.error().message);
          faulty_ = made.value().get();
          return std::move(made).value();
        },
        hello_of(1));
    ASSERT_TRUE(left_->connect(*right_).ok());
    clock_.advance(milliseconds(1));
  }
  // Whether worker 1 has its next report now; sets `finish` to when its message arrived.
  bool here(Duration* finish = nullptr) {
    faulty_->pump();
    const auto done = right_->mailbox.wait(Duration::zero());
    if (!done.ok()) return false;
    last_ = done.value();
    if (finish != nullptr) *finish = last_.finish;
    return true;
  }
  void post_and_send(uint64_t name, Duration sent) {
    right_->recv(0, name, got_);
    left_->send(1, name, bytes_, {sent, Duration(0)});
  }

  HandClock clock_;
  MemoryNetwork network_;
  std::unique_ptr<Party> left_, right_;
  FaultyTransport* faulty_ = nullptr;
  std::vector<std::byte> bytes_ = pattern(1, 1000), got_ = std::vector<std::byte>(1000);
  Done last_;
};

TEST_F(FaultyTest, LatencyAndRateDelayInOrder) {
  FaultSettings settings;
  settings.links[{WorkerId{0}, WorkerId{1}}] = {microseconds(100), 1e6, {}};  // 1000 bytes: 1 ms
  start(settings);
  const Duration sent = clock_.now();
  post_and_send(1, sent);
  post_and_send(2, sent);  // waits behind the first
  EXPECT_FALSE(here());
  EXPECT_EQ(faulty_->pump(), sent + microseconds(1100));
  clock_.advance(microseconds(1099));
  EXPECT_FALSE(here());
  clock_.advance(microseconds(1));
  Duration finish{};
  EXPECT_TRUE(here(&finish));
  EXPECT_EQ(finish, sent + microseconds(1100));
  EXPECT_FALSE(here());
  clock_.advance(microseconds(1000));
  EXPECT_TRUE(here(&finish));
  EXPECT_EQ(finish, sent + microseconds(2100));
  EXPECT_TRUE(got_ == bytes_);
}

TEST_F(FaultyTest, JitterRepeatsBySeedAndKeepsTheOrder) {
  std::vector<std::vector<Duration>> runs;
  for (const uint64_t seed : {3, 3, 4}) {
    left_.reset();
    right_.reset();
    FaultSettings settings;
    settings.seed = seed;
    settings.others = {microseconds(10), 0, microseconds(50)};
    start(settings);
    const Duration base = clock_.now();
    for (uint64_t name = 0; name < 20; ++name) post_and_send(name, base + Duration(name));
    clock_.advance(milliseconds(1));
    std::vector<Duration> moments;
    Duration finish{};
    while (here(&finish)) moments.push_back(finish - base);
    ASSERT_EQ(moments.size(), 20u);
    EXPECT_TRUE(std::is_sorted(moments.begin(), moments.end()));
    EXPECT_GE(moments.front(), microseconds(10));
    EXPECT_LT(moments.back(), microseconds(61));
    runs.push_back(moments);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST_F(FaultyTest, ALinkCanChange) {
  start({});
  post_and_send(1, clock_.now());
  EXPECT_TRUE(here());
  faulty_->set_link(WorkerId{0}, {milliseconds(20), 0, {}});
  post_and_send(2, clock_.now());
  EXPECT_FALSE(here());
  clock_.advance(milliseconds(20));
  EXPECT_TRUE(here());
}

TEST_F(FaultyTest, HeldMessagesArriveInOrderAfterTheHold) {
  start({});
  const Duration until = clock_.now() + milliseconds(30);
  faulty_->hold(WorkerId{0}, until);
  post_and_send(1, clock_.now());
  EXPECT_FALSE(here());
  clock_.advance(milliseconds(29));
  post_and_send(2, clock_.now());
  EXPECT_FALSE(here());
  clock_.advance(milliseconds(1));
  Duration finish{};
  for (int message = 0; message < 2; ++message) {
    EXPECT_TRUE(here(&finish));
    EXPECT_EQ(finish, until);
  }
  faulty_->hold(WorkerId{0}, until);  // this hold has ended
  post_and_send(3, clock_.now());
  EXPECT_TRUE(here());
}

TEST_F(FaultyTest, ALostPeerEndsEverythingAtBothEnds) {
  FaultSettings settings;
  settings.others.latency = milliseconds(5);
  start(settings);
  post_and_send(1, clock_.now());  // in transit
  const Ticket open = right_->recv(0, 2, got_);
  const Ticket there = left_->recv(1, 3, bytes_);
  faulty_->lose(WorkerId{0});
  EXPECT_EQ(right_->next_loss().peer, WorkerId{0});
  const Done ended = right_->end_of(open);
  ASSERT_FALSE(ended.status.ok());
  EXPECT_EQ(ended.status.error().code, Code::Disconnected);
  EXPECT_EQ(ended.status.error().reach, Reach::Worker);
  const Done transit = right_->end_of(Ticket{1});
  ASSERT_FALSE(transit.status.ok());
  EXPECT_EQ(transit.status.error().code, Code::Disconnected);
  const Done late = right_->end_of(right_->send(0, 4, bytes_));
  ASSERT_FALSE(late.status.ok());
  EXPECT_EQ(late.status.error().code, Code::Disconnected);
  EXPECT_EQ(left_->next_loss().peer, WorkerId{1});
  EXPECT_FALSE(left_->end_of(there).status.ok());
  clock_.advance(milliseconds(10));
  EXPECT_FALSE(here()) << "a lost message came after all";
}

TEST_F(FaultyTest, NothingMovesWhileFrozen) {
  start({});
  right_->recv(0, 1, got_);
  faulty_->freeze();
  left_->send(1, 1, bytes_);
  EXPECT_FALSE(here());
  const Ticket held = right_->send(0, 2, bytes_);
  std::vector<std::byte> there(1000);
  const Ticket receiving = left_->recv(1, 2, there);
  left_->drain(Duration::zero());
  clock_.advance(milliseconds(5));
  EXPECT_FALSE(here());
  EXPECT_FALSE(there == bytes_);
  faulty_->thaw();
  EXPECT_TRUE(left_->end_of(receiving).status.ok());
  EXPECT_TRUE(there == bytes_);
  EXPECT_TRUE(right_->end_of(held).status.ok());
  EXPECT_TRUE(right_->end_of(Ticket{1}).status.ok());
}

}  // namespace
}  // namespace tenuto
