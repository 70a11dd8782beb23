// Connections that break between two wires, the same for each wire between processes.
#include <gtest/gtest.h>

#include <cstdio>

#include "any_wire.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

class MendPair : public testing::TestWithParam<WireKind> {
 protected:
  void join(const WireOptions& options = {}) {
    left_ = std::make_unique<Party>(make_wire(GetParam(), options), hello_of(0));
    right_ = std::make_unique<Party>(make_wire(GetParam(), options), hello_of(1));
    ASSERT_TRUE(left_->connect(*right_).ok());
  }
  void pass(Party& from, Party& to, uint64_t name) {
    std::vector<std::byte> bytes = pattern(name, 3000), got(3000);
    const Ticket receiving = to.recv(from.self.value, name, got);
    const Ticket sending = from.send(to.self.value, name, bytes);
    EXPECT_TRUE(to.end_of(receiving).status.ok());
    EXPECT_TRUE(from.end_of(sending).status.ok());
    EXPECT_TRUE(same(bytes, got));
  }

  std::unique_ptr<Party> left_, right_;
};

TEST_P(MendPair, AnIdleConnectionIsReconnected) {
  join();
  uint64_t name = 0;
  for (int round = 0; round < 6; ++round) {
    Party& breaker = round % 2 == 0 ? *left_ : *right_;
    Party& other = round % 2 == 0 ? *right_ : *left_;
    EXPECT_TRUE(breaker.wire->break_connection(other.self, 0).ok());
    pass(breaker, other, ++name);
    pass(other, breaker, ++name);
    if (round % 3 == 0) breaker.drain(milliseconds(20));
  }
  const auto repairs = left_->wire->take_news().repairs;
  ASSERT_FALSE(repairs.empty());
  for (const Repair& each : repairs) {
    EXPECT_EQ(each.peer, WorkerId{1});
    EXPECT_GT(each.took, Duration::zero());
    std::printf("took %.2f ms\n", to_milliseconds(each.took));
  }
  EXPECT_TRUE(left_->wire->take_news().repairs.empty()) << "each is told once";
  EXPECT_TRUE(left_->losses.empty());
  EXPECT_TRUE(right_->losses.empty());
}

TEST_P(MendPair, NamesMayBeReusedAcrossABreak) {
  join();
  for (int round = 0; round < 40; ++round) {
    if (round % 5 == 0) {
      Party& breaker = round % 2 == 0 ? *left_ : *right_;
      EXPECT_TRUE(breaker.wire->break_connection(WorkerId{1 - breaker.self.value}, round % 3).ok());
    }
    std::vector<std::byte> bytes = pattern(static_cast<uint64_t>(round), 500), got(500);
    const Ticket receiving = right_->recv(0, 1, got), sending = left_->send(1, 1, bytes);
    EXPECT_TRUE(right_->end_of(receiving).status.ok());
    EXPECT_TRUE(left_->end_of(sending).status.ok());
    EXPECT_TRUE(same(bytes, got)) << round;
  }
}

TEST_P(MendPair, DropWhileBrokenEndsEverything) {
  for (const bool connector : {true, false}) {
    WireOptions options;
    options.mend_limit = kPatience * 2;  // the other end is told, so nobody waits this long
    join(options);
    Party& dropper = connector ? *left_ : *right_;
    Party& other = connector ? *right_ : *left_;
    std::vector<std::byte> out(100), in(100), buffer(100);
    const Ticket sending = dropper.send(other.self.value, 1, out);
    const Ticket receiving = dropper.recv(other.self.value, 2, in);
    const Ticket there = other.recv(dropper.self.value, 3, buffer);
    EXPECT_TRUE(dropper.wire->break_connection(other.self, 0).ok());
    EXPECT_TRUE(dropper.wire->drop(other.self).ok());
    for (const Ticket ticket : {sending, receiving}) {
      const Done done = dropper.end_of(ticket);
      ASSERT_FALSE(done.status.ok());
      EXPECT_EQ(done.status.error().code, Code::Cancelled);
    }
    EXPECT_EQ(other.next_loss().peer, dropper.self);
    EXPECT_FALSE(other.end_of(there).status.ok());
    EXPECT_TRUE(dropper.losses.empty());
  }
}

TEST_P(MendPair, CloseWhileBrokenEndsEverything) {
  join();
  std::vector<std::byte> in(100);
  const Ticket receiving = left_->recv(1, 2, in);
  EXPECT_TRUE(left_->wire->break_connection(WorkerId{1}, 0).ok());
  EXPECT_TRUE(left_->wire->close(milliseconds(100)).ok());
  EXPECT_FALSE(left_->end_of(receiving).status.ok());
  left_.reset();
  // A peer that closes while its connection is broken is lost. If the connection has been mended
  // before it closed, it has closed in order and is not reported; calls with it end all the same.
  EXPECT_FALSE(right_->end_of(right_->recv(0, 3, in)).status.ok());
}

TEST_P(MendPair, ASecondConnectIsRefusedWhileBroken) {
  join();
  EXPECT_TRUE(left_->wire->break_connection(WorkerId{1}, 0).ok());
  EXPECT_FALSE(left_->connect(*right_).ok());
  pass(*left_, *right_, 9);
}

INSTANTIATE_TEST_SUITE_P(All, MendPair,
                         testing::Values(WireKind::Tcp, WireKind::TcpEvent, WireKind::TcpPoll,
                                         WireKind::TcpTls, WireKind::UcxAutomatic),
                         name_of_kind);

}  // namespace
}  // namespace tenuto
