// Connections that break while both ends live: every message arrives once, whole, and nobody is
// lost.
#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "base/text.h"
#include "party.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

UcxTransport& ucx(Party& party) { return static_cast<UcxTransport&>(*party.wire); }

std::string name_of(const testing::TestParamInfo<UcxProtocol>& info) {
  switch (info.param) {
    case UcxProtocol::Automatic:
      return "Automatic";
    case UcxProtocol::Eager:
      return "Eager";
    default:
      return "Rendezvous";
  }
}

// What one direction carries: the sender's bytes, what they were, and the receiver's room.
struct Message {
  std::vector<std::byte> sent, got;
  uint64_t seed = 0;
  Ticket sending{}, receiving{};
  bool left = false, arrived = false;
};

class Mend : public testing::TestWithParam<UcxProtocol> {
 protected:
  static constexpr int kMessages = 120;

  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      party_[i] = std::make_unique<Party>(make_ucx(ucx_settings(GetParam())), hello_of(i));
    }
    ASSERT_TRUE(party_[0]->connect(*party_[1]).ok());
  }

  static size_t random_size(Random& random) {
    switch (random.below(4)) {
      case 0:
        return static_cast<size_t>(random.below(100));
      case 1:
        return static_cast<size_t>(random.below(20000));
      case 2:
        return static_cast<size_t>(random.below(200000));
      default:
        return static_cast<size_t>(random.below(1500000));
    }
  }

  // Takes the reports of one side. A send that has ended gives its memory back: it is painted over
  // at once. True when there was a report.
  bool take(int side, Duration limit) {
    const auto done = party_[side]->mailbox.wait(limit);
    if (!done.ok()) return false;
    const Done& report = done.value();
    EXPECT_TRUE(report.status.ok()) << report.status.error().message;
    EXPECT_NE(report.ticket, kNoTicket) << "a loss was told";
    for (Message& message : messages_[side]) {
      if (message.sending != report.ticket || !report.status.ok()) continue;
      EXPECT_FALSE(message.left) << "a send ended twice";
      message.left = true;
      --open_;
      paint(message.sent, 0x5a);
      return true;
    }
    for (Message& message : messages_[1 - side]) {
      if (message.receiving != report.ticket || !report.status.ok()) continue;
      EXPECT_FALSE(message.arrived) << "a receive ended twice";
      message.arrived = true;
      --open_;
      EXPECT_TRUE(same(message.got, pattern(message.seed, message.got.size())));
      return true;
    }
    ADD_FAILURE() << "a report of no call";
    return true;
  }

  void send(int side, int index) {
    Message& message = messages_[side][static_cast<size_t>(index)];
    message.sending =
        party_[side]->send(1 - side, static_cast<uint64_t>(index), message.sent, {Duration(7), {}});
    ++open_;
  }
  void receive(int side, int index) {
    Message& message = messages_[1 - side][static_cast<size_t>(index)];
    message.receiving = party_[side]->recv(1 - side, static_cast<uint64_t>(index), message.got);
    ++open_;
  }

  std::unique_ptr<Party> party_[2];
  std::deque<Message> messages_[2];  // by sender
  int open_ = 0, idle_ = 0;
};

TEST_P(Mend, EveryMessageArrivesOnceWhateverBreaks) {
  Random random(20 + static_cast<uint64_t>(GetParam()));
  for (auto& all : messages_) {
    for (int i = 0; i < kMessages; ++i) {
      Message message;
      message.seed = random.next();
      message.sent = pattern(message.seed, random_size(random));
      message.got.resize(message.sent.size());
      all.push_back(std::move(message));
    }
  }
  int next[4] = {};  // of: sends of 0, of 1, receives at 0, at 1
  while (open_ > 0 || std::any_of(next, next + 4, [](int at) { return at < kMessages; })) {
    const auto what = static_cast<int>(random.below(4));
    if (next[what] < kMessages) {
      what < 2 ? send(what, next[what]) : receive(what - 2, next[what]);
      ++next[what];
    }
    if (random.below(12) == 0) {
      const auto side = static_cast<int>(random.below(2));
      const Status status =
          party_[side]->wire->break_connection(WorkerId{1 - side}, random.below(4));
      ASSERT_TRUE(status.ok());
    }
    for (const int side : {0, 1}) {
      while (take(side, Duration::zero())) continue;
    }
    const bool all_posted = std::all_of(next, next + 4, [](int at) { return at == kMessages; });
    if (all_posted && open_ > 0) {
      // Breaks go on while the rest is under way; a wait that long is a message that is gone.
      const auto side = static_cast<int>(random.below(2));
      idle_ = take(side, milliseconds(2)) ? 0 : idle_ + 1;
      ASSERT_LT(idle_, 4000) << open_ << " calls never ended";
    }
  }
  const UcxCounters left = ucx(*party_[0]).counters(), right = ucx(*party_[1]).counters();
  EXPECT_GT(left.broken, 3);
  EXPECT_GT(right.broken, 3);
  EXPECT_GT(left.sent_again + right.sent_again, 0) << "no break swallowed anything";
  EXPECT_EQ(left.malformed + right.malformed, 0);
  EXPECT_FALSE(party_[0]->wire->take_repairs().empty());
  EXPECT_TRUE(party_[1]->wire->take_repairs().empty()) << "the end that connected tells";
  std::printf("breaks %ld and %ld, sent again %ld and %ld\n", left.broken, right.broken,
              left.sent_again, right.sent_again);
}

INSTANTIATE_TEST_SUITE_P(All, Mend,
                         testing::Values(UcxProtocol::Automatic, UcxProtocol::Eager,
                                         UcxProtocol::Rendezvous),
                         name_of);

class MendPair : public testing::Test {
 protected:
  void join(UcxSettings settings = ucx_settings()) {
    left_ = std::make_unique<Party>(make_ucx(settings), hello_of(0));
    right_ = std::make_unique<Party>(make_ucx(settings), hello_of(1));
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

TEST_F(MendPair, AnIdleConnectionStandsAgain) {
  join();
  uint64_t name = 0;
  for (int round = 0; round < 6; ++round) {
    Party& breaker = round % 2 == 0 ? *left_ : *right_;
    Party& other = round % 2 == 0 ? *right_ : *left_;
    EXPECT_TRUE(breaker.wire->break_connection(other.self, 0).ok());
    pass(breaker, other, ++name);
    pass(other, breaker, ++name);
    if (round % 3 == 0) breaker.settle(milliseconds(20));
  }
  const auto repairs = left_->wire->take_repairs();
  ASSERT_FALSE(repairs.empty());
  for (const Repair& each : repairs) {
    EXPECT_EQ(each.peer, WorkerId{1});
    EXPECT_GT(each.took, Duration::zero());
    std::printf("took %.2f ms\n", to_milliseconds(each.took));
  }
  EXPECT_TRUE(left_->wire->take_repairs().empty()) << "each is told once";
  EXPECT_TRUE(left_->losses.empty());
  EXPECT_TRUE(right_->losses.empty());
}

TEST_F(MendPair, NamesMayComeAgainAcrossABreak) {
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

TEST_F(MendPair, DropWhileBrokenEndsEverything) {
  for (const bool connector : {true, false}) {
    UcxSettings settings = ucx_settings();
    settings.mend_limit = kPatience * 2;  // it is told, not waited for
    join(settings);
    Party& dropper = connector ? *left_ : *right_;
    Party& other = connector ? *right_ : *left_;
    std::vector<std::byte> out(100), in(100), room(100);
    const Ticket sending = dropper.send(other.self.value, 1, out);
    const Ticket receiving = dropper.recv(other.self.value, 2, in);
    const Ticket there = other.recv(dropper.self.value, 3, room);
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

TEST_F(MendPair, CloseWhileBrokenEndsEverything) {
  join();
  std::vector<std::byte> in(100);
  const Ticket receiving = left_->recv(1, 2, in);
  EXPECT_TRUE(left_->wire->break_connection(WorkerId{1}, 0).ok());
  EXPECT_TRUE(left_->wire->close(milliseconds(100)).ok());
  EXPECT_FALSE(left_->end_of(receiving).status.ok());
  left_.reset();
  EXPECT_EQ(right_->next_loss().peer, WorkerId{0});
}

TEST_F(MendPair, ASecondConnectIsRefusedWhileBroken) {
  join();
  EXPECT_TRUE(left_->wire->break_connection(WorkerId{1}, 0).ok());
  EXPECT_FALSE(left_->connect(*right_).ok());
  pass(*left_, *right_, 9);
}

}  // namespace
}  // namespace tenuto
