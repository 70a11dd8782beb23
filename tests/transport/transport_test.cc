// The contract of transport.h, the same cases over every wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "base/text.h"
#include "tcp_party.h"
#include "transport/faulty.h"
#include "transport/ucx/frame.h"

namespace tenuto {
namespace {

enum class Kind {
  Memory,
  Faulty,
  Tcp,
  TcpEvent,
  TcpPoll,
  TcpTls,
  UcxAutomatic,
  UcxEager,
  UcxRendezvous,
  UcxDevice
};

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  switch (info.param) {
    case Kind::Memory:
      return "Memory";
    case Kind::Faulty:
      return "FaultyMemory";
    case Kind::Tcp:
      return "Tcp";
    case Kind::TcpEvent:
      return "TcpEvent";
    case Kind::TcpPoll:
      return "TcpPoll";
    case Kind::TcpTls:
      return "TcpTls";
    case Kind::UcxAutomatic:
      return "UcxAutomatic";
    case Kind::UcxEager:
      return "UcxEager";
    case Kind::UcxDevice:
      return "UcxDevice";
    default:
      return "UcxRendezvous";
  }
}

class Wires : public testing::TestWithParam<Kind> {
 protected:
  Party::Make make() {
    switch (GetParam()) {
      case Kind::Memory:
        return [this](Hello hello, Mailbox& mailbox) {
          return make_memory_transport(network_, std::move(hello), mailbox);
        };
      case Kind::Faulty:
        return make_slow_memory();
      case Kind::Tcp:
        return make_tcp();
      case Kind::TcpEvent:
        return make_driven_tcp(WireProgress::Event);
      case Kind::TcpPoll:
        return make_driven_tcp(WireProgress::Poll);
      case Kind::TcpTls:
        return make_tcp(tls_settings());
      case Kind::UcxAutomatic:
        return make_ucx(ucx_settings());
      case Kind::UcxEager:
        return make_ucx(ucx_settings(UcxProtocol::Eager));
      case Kind::UcxDevice:
        return make_ucx(ucx_device_settings());
      default:
        return make_ucx(ucx_settings(UcxProtocol::Rendezvous));
    }
  }
  // The memory wire with a little latency and jitter on every link.
  Party::Make make_slow_memory() {
    return [this](Hello hello, Mailbox& mailbox) -> std::unique_ptr<Transport> {
      FaultSettings settings;
      settings.others.latency = std::chrono::microseconds(50);
      settings.others.jitter = std::chrono::microseconds(50);
      const WorkerId self = hello.self;
      auto made =
          make_faulty_transport(settings, self, mailbox, monotonic_clock(), FaultDrive::Thread,
                                [&](Mailbox& gate) -> Result<std::unique_ptr<Transport>> {
                                  return make_memory_transport(network_, std::move(hello), gate);
                                });
      CHECK(made.ok(), made.error().message);
      return std::move(made).value();
    };
  }
  Party party(int worker) { return Party(make(), hello_of(worker)); }

  MemoryNetwork network_;
};

class Pair : public Wires {
 protected:
  void SetUp() override {
    left_ = std::make_unique<Party>(make(), hello_of(0));
    right_ = std::make_unique<Party>(make(), hello_of(1));
  }
  void join() {
    const Status status = left_->connect(*right_);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  // One message from left to right of `size` bytes, the receive posted first or last.
  void pass(uint64_t name, size_t size, bool receive_first) {
    const auto sent = pattern(name, size);
    std::vector<std::byte> got(size);
    Ticket receiving{}, sending{};
    if (receive_first) receiving = right_->recv(0, name, got);
    sending = left_->send(1, name, sent, {Duration(41), Duration(0)});
    if (!receive_first) receiving = right_->recv(0, name, got);
    const Done done = right_->end_of(receiving);
    ASSERT_TRUE(done.status.ok()) << done.status.error().message;
    EXPECT_EQ(done.sent, Duration(41));
    EXPECT_EQ(done.peer, WorkerId{0});
    EXPECT_GT(done.finish, Duration::zero());
    const Done gone = left_->end_of(sending);
    EXPECT_TRUE(gone.status.ok());
    EXPECT_EQ(gone.peer, WorkerId{1});
    EXPECT_TRUE(same(sent, got)) << "the bytes of message " << name << " differ";
  }
  // True when the wire supports takers; otherwise checks that it refuses them.
  bool has_takers() {
    if (right_->wire->has_takers()) return true;
    Taken taken;
    std::vector<std::byte> buffer(8);
    EXPECT_FALSE(right_->wire->take({0}, {0, 0, 1}, buffer, taken.taker(), Ticket{99}).ok());
    return false;
  }
  static void expect_code(const Done& done, Code code, Reach reach) {
    ASSERT_FALSE(done.status.ok());
    EXPECT_EQ(done.status.error().code, code) << done.status.error().message;
    EXPECT_EQ(done.status.error().reach, reach) << done.status.error().message;
  }

  std::unique_ptr<Party> left_, right_;
};

TEST_P(Pair, PassesMessagesOfAllSizesInBothOrdersOfPosting) {
  join();
  uint64_t name = 1;
  for (const size_t size : {0, 1, 8, 4095, 8192, 65536, 65537, 300000, 1 << 20}) {
    pass(name++, size, true);
    pass(name++, size, false);
  }
}

// More messages are under way, and more have arrived, than one frame between the two ends can
// report.
TEST_P(Pair, PassesManyMessagesAtOnce) {
  join();
  constexpr size_t kCount = 4 * kFrameArrivals + 3, kBytes = 100;
  std::vector<std::vector<std::byte>> got(kCount, std::vector<std::byte>(kBytes));
  std::vector<Ticket> receiving, sending;
  for (size_t i = 0; i < kCount; ++i) receiving.push_back(right_->recv(0, i + 1, got[i]));
  std::vector<std::vector<std::byte>> sent;
  for (size_t i = 0; i < kCount; ++i) sent.push_back(pattern(i + 1, kBytes));
  for (size_t i = kCount; i-- > 0;) sending.push_back(left_->send(1, i + 1, sent[i]));
  for (const Ticket ticket : receiving) EXPECT_TRUE(right_->end_of(ticket).status.ok());
  for (const Ticket ticket : sending) EXPECT_TRUE(left_->end_of(ticket).status.ok());
  EXPECT_EQ(got, sent);
}

// A message is given to its taker once, before it is reported. The sizes lie on both sides of the
// limit for messages that go in one piece.
TEST_P(Pair, GivesMessagesToTakers) {
  join();
  if (!has_takers()) return;
  uint64_t name = 1;
  for (const size_t size : {0, 1, 4095, 65537, 512 << 10, (512 << 10) + 1, 600 << 10, 3 << 20}) {
    const auto sent = pattern(name, size);
    std::vector<std::byte> buffer(size);
    Taken taken;
    const Ticket receiving = right_->take(0, name, buffer, taken.taker());
    const Ticket sending = left_->send(1, name++, sent);
    ASSERT_TRUE(right_->end_of(receiving).status.ok());
    EXPECT_EQ(taken.times, 1);
    EXPECT_TRUE(same(taken.bytes, sent)) << size << " bytes";
    EXPECT_TRUE(left_->end_of(sending).status.ok());
  }
}

// A taker is not called for a message that does not come or has the wrong size.
TEST_P(Pair, TakersGetNoMissingOrWrongMessages) {
  join();
  if (!has_takers()) return;
  std::vector<std::byte> buffer(100), longer(101);
  Taken absent, wrong;
  const Ticket waiting = right_->take(0, 1, buffer, absent.taker());
  const Ticket mistaken = right_->take(0, 2, buffer, wrong.taker());
  const Ticket sending = left_->send(1, 2, longer);
  expect_code(right_->end_of(mistaken), Code::Invalid, Reach::Call);
  expect_code(left_->end_of(sending), Code::Invalid, Reach::Call);
  ASSERT_TRUE(right_->wire->drop({0}).ok());
  EXPECT_FALSE(right_->end_of(waiting).status.ok());
  EXPECT_EQ(absent.times + wrong.times, 0);
}

TEST_P(Pair, PassesSixtyFourMebibytes) {
  join();
  pass(1, 64 << 20, true);
  pass(2, 64 << 20, false);
}

TEST_P(Pair, MatchesByNameWhateverTheOrder) {
  join();
  constexpr int kCount = 50;
  std::vector<std::vector<std::byte>> sent, got(kCount);
  std::vector<Ticket> sends, receives;
  for (int i = 0; i < kCount; ++i) {
    sent.push_back(pattern(i, 1000 * i + 1));
    got[i].resize(sent[i].size());
  }
  for (int i = 0; i < kCount; ++i) sends.push_back(left_->send(1, i, sent[i]));
  for (int i = kCount - 1; i >= 0; --i) receives.push_back(right_->recv(0, i, got[i]));
  for (const Ticket ticket : receives) EXPECT_TRUE(right_->end_of(ticket).status.ok());
  for (const Ticket ticket : sends) EXPECT_TRUE(left_->end_of(ticket).status.ok());
  EXPECT_TRUE(sent == got);
}

TEST_P(Pair, PostedBeforeTheConnection) {
  const auto sent = pattern(1, 5000);
  std::vector<std::byte> got(5000);
  const Ticket sending = right_->send(0, 9, sent);
  const Ticket receiving = left_->recv(1, 9, got);
  join();
  EXPECT_TRUE(left_->end_of(receiving).status.ok());
  EXPECT_TRUE(right_->end_of(sending).status.ok());
  EXPECT_TRUE(sent == got);
}

TEST_P(Pair, AnotherSizeIsAnErrorAtBothEnds) {
  join();
  for (const size_t size : {99, 101, 1 << 20}) {
    const auto sent = pattern(1, size);
    std::vector<std::byte> got(100);
    const Ticket receiving = right_->recv(0, size, got);
    const Ticket sending = left_->send(1, size, sent);
    expect_code(right_->end_of(receiving), Code::Invalid, Reach::Call);
    const Done done = left_->end_of(sending);
    expect_code(done, Code::Invalid, Reach::Call);
    EXPECT_NE(done.status.error().message.find("expects 100"), std::string::npos)
        << done.status.error().message;
    EXPECT_TRUE(got == std::vector<std::byte>(100)) << "the buffer was written to";
  }
  pass(5, 100, true);
}

TEST_P(Pair, TheSecondUseOfANameIsAnError) {
  join();
  const auto sent = pattern(1, 64);
  std::vector<std::byte> got(64), other(64);
  const Ticket first = right_->recv(0, 3, got);
  expect_code(right_->end_of(right_->recv(0, 3, other)), Code::Invalid, Reach::Call);
  EXPECT_TRUE(left_->end_of(left_->send(1, 3, sent)).status.ok());
  EXPECT_TRUE(right_->end_of(first).status.ok());
  const Ticket waiting = left_->send(1, 4, sent);
  expect_code(left_->end_of(left_->send(1, 4, sent)), Code::Invalid, Reach::Call);
  EXPECT_TRUE(right_->end_of(right_->recv(0, 4, got)).status.ok());
  EXPECT_TRUE(left_->end_of(waiting).status.ok());
}

TEST_P(Pair, TheSenderSetsTheVirtualArrival) {
  join();
  const auto sent = pattern(1, 10);
  std::vector<std::byte> got(10);
  const Ticket receiving = right_->recv(0, 1, got);
  left_->end_of(left_->send(1, 1, sent, {Duration(5), Duration(77)}));
  const Done done = right_->end_of(receiving);
  EXPECT_EQ(done.sent, Duration(5));
  if (GetParam() == Kind::Faulty) {
    EXPECT_GE(done.finish, Duration(77));  // a faulty link only delays
  } else {
    EXPECT_EQ(done.finish, Duration(77));
  }
}

TEST_P(Pair, DropCancelsHereAndIsALossThere) {
  join();
  const auto sent = pattern(1, 100);
  std::vector<std::byte> got(100), there(100);
  const Ticket sending = left_->send(1, 1, sent), receiving = left_->recv(1, 2, got);
  const Ticket waiting = right_->recv(0, 3, there);
  pass(4, 100, true);
  EXPECT_TRUE(left_->wire->drop(WorkerId{1}).ok());
  expect_code(left_->end_of(sending), Code::Cancelled, Reach::Call);
  expect_code(left_->end_of(receiving), Code::Cancelled, Reach::Call);
  const Done loss = right_->next_loss();
  EXPECT_EQ(loss.peer, WorkerId{0});
  expect_code(loss, Code::Disconnected, Reach::Worker);
  expect_code(right_->end_of(waiting), Code::Disconnected, Reach::Worker);
  expect_code(right_->end_of(right_->send(0, 5, sent)), Code::Disconnected, Reach::Worker);
  left_->drain(std::chrono::milliseconds(50));
  EXPECT_TRUE(left_->losses.empty());
  EXPECT_TRUE(right_->losses.empty());
  join();
  pass(6, 100, false);
}

TEST_P(Pair, DropWhileLargeMessagesAreUnderWay) {
  join();
  constexpr int kCount = 8;
  constexpr size_t kSize = 8 << 20;
  const auto sent = pattern(1, kSize);
  std::vector<std::vector<std::byte>> got(kCount, std::vector<std::byte>(kSize));
  std::vector<Ticket> sends, receives;
  for (int i = 0; i < kCount; ++i) receives.push_back(right_->recv(0, i, got[i]));
  for (int i = 0; i < kCount; ++i) sends.push_back(left_->send(1, i, sent));
  EXPECT_TRUE(left_->wire->drop(WorkerId{1}).ok());
  for (const Ticket ticket : sends) {
    const Done done = left_->end_of(ticket);
    if (!done.status.ok()) expect_code(done, Code::Cancelled, Reach::Call);
  }
  for (int i = 0; i < kCount; ++i) {
    const Done done = right_->end_of(receives[i]);
    if (done.status.ok()) {
      EXPECT_TRUE(same(got[i], sent));
    } else {
      expect_code(done, Code::Disconnected, Reach::Worker);
    }
    // The ticket has ended, so the test owns the buffer again.
    paint(got[i], 0x5a);
  }
  right_->drain(std::chrono::milliseconds(50));
  for (const auto& buffer : got) EXPECT_TRUE(painted(buffer, 0x5a));
}

TEST_P(Pair, CloseLetsEverythingSentArrive) {
  join();
  constexpr int kCount = 8;
  const auto sent = pattern(3, 3 << 20);
  std::vector<std::vector<std::byte>> got(kCount, std::vector<std::byte>(sent.size()));
  std::vector<Ticket> sends, receives;
  for (int i = 0; i < kCount; ++i) receives.push_back(right_->recv(0, i, got[i]));
  for (int i = 0; i < kCount; ++i) sends.push_back(left_->send(1, i, sent));
  std::vector<std::byte> never(8);
  const Ticket open = right_->recv(0, 100, never);
  const Status closed = left_->wire->close(kPatience);
  EXPECT_TRUE(closed.ok()) << closed.error().message;
  left_->wire.reset();
  for (const Ticket ticket : sends) EXPECT_TRUE(left_->end_of(ticket).status.ok());
  for (int i = 0; i < kCount; ++i) {
    EXPECT_TRUE(right_->end_of(receives[i]).status.ok());
    EXPECT_TRUE(same(got[i], sent));
  }
  expect_code(right_->end_of(open), Code::Disconnected, Reach::Worker);
  EXPECT_TRUE(right_->losses.empty()) << "an orderly close is not a loss";
}

TEST_P(Pair, CloseGivesUpAfterItsLimit) {
  join();
  const auto sent = pattern(1, 100);
  const Ticket sending = left_->send(1, 1, sent);
  const Status closed = left_->wire->close(std::chrono::milliseconds(30));
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code, Code::Timeout);
  expect_code(left_->end_of(sending), Code::Cancelled, Reach::Call);
  const Status late = left_->wire->send(WorkerId{1}, {}, sent, {}, left_->fresh());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::Cancelled);
  EXPECT_TRUE(left_->wire->close(kPatience).ok());
}

TEST_P(Pair, BothCloseAtOnce) {
  join();
  Status left = ok();
  std::thread thread([&] { left = left_->wire->close(kPatience); });
  const Status right = right_->wire->close(kPatience);
  thread.join();
  EXPECT_TRUE(left.ok());
  EXPECT_TRUE(right.ok());
}

TEST_P(Pair, ASecondConnectionIsRefused) {
  join();
  const Status again = left_->connect(*right_);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("already connected"), std::string::npos);
  const Status back = right_->connect(*left_);
  ASSERT_FALSE(back.ok());
  pass(1, 100, true);
}

TEST_P(Wires, RefusesAnotherJobTokenVersionEpochOrWorker) {
  Party host = party(0);
  struct Case {
    std::function<void(Hello&)> change;
    WorkerId target;
    std::string words;
  };
  const Case cases[] = {
      {[](Hello& hello) { hello.job = "saga"; }, WorkerId{0}, "belongs to job 'saga'"},
      {[](Hello& hello) { hello.token = "guess"; }, WorkerId{0}, "has a wrong token"},
      {[](Hello& hello) { hello.version = 7; }, WorkerId{0},
       cat("speaks wire version 7, expected ", kWireVersion)},
      {[](Hello& hello) { hello.epoch += 1; }, WorkerId{0}, "the members of the run have changed"},
      {[](Hello&) {}, WorkerId{5}, "listens worker 0, expected worker 5"}};
  for (const Case& each : cases) {
    Hello hello = hello_of(1);
    each.change(hello);
    Party guest(make(), hello);
    const Status status = guest.connect(each.target, host.wire->address());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::Invalid);
    EXPECT_NE(status.error().message.find(each.words), std::string::npos) << status.error().message;
    EXPECT_EQ(status.error().message.find("secret"), std::string::npos) << "the token leaks";
    EXPECT_TRUE(host.losses.empty());
  }
  Party good = party(1);
  EXPECT_TRUE(good.connect(host).ok());
}

// All to all, with sizes and order by seed; every byte is checked.
TEST_P(Wires, EightWorkersAllToAll) {
  constexpr int kWorkers = 8, kMessages = 12;
  std::vector<std::unique_ptr<Party>> all;
  for (int i = 0; i < kWorkers; ++i) all.push_back(std::make_unique<Party>(make(), hello_of(i)));
  for (int i = 0; i < kWorkers; ++i) {
    for (int k = i + 1; k < kWorkers; ++k) ASSERT_TRUE(all[i]->connect(*all[k]).ok());
  }
  const auto size_of = [](int from, int to, int message) {
    const uint64_t bits = mix(11, from, to, message);
    return static_cast<size_t>(bits % (bits % 7 == 0 ? 400000 : 3000));
  };
  std::vector<std::thread> threads;
  for (int self = 0; self < kWorkers; ++self) {
    threads.emplace_back([&, self] {
      Random random(self);
      struct Call {
        bool send;
        int peer, message;
      };
      std::vector<Call> calls;
      for (int peer = 0; peer < kWorkers; ++peer) {
        for (int message = 0; peer != self && message < kMessages; ++message) {
          calls.push_back({true, peer, message});
          calls.push_back({false, peer, message});
        }
      }
      for (size_t i = calls.size(); i > 1; --i) std::swap(calls[i - 1], calls[random.below(i)]);
      std::vector<std::vector<std::byte>> buffers(calls.size());
      std::vector<Ticket> tickets;
      for (size_t i = 0; i < calls.size(); ++i) {
        const auto [send, peer, message] = calls[i];
        const int from = send ? self : peer, to = send ? peer : self;
        const size_t size = size_of(from, to, message);
        buffers[i] = send ? pattern(mix(from, to, message), size) : std::vector<std::byte>(size);
        tickets.push_back(send ? all[self]->send(peer, message, buffers[i])
                               : all[self]->recv(peer, message, buffers[i]));
      }
      for (size_t i = 0; i < calls.size(); ++i) {
        const Done done = all[self]->end_of(tickets[i]);
        EXPECT_TRUE(done.status.ok());
        const auto [send, peer, message] = calls[i];
        if (!send) {
          EXPECT_TRUE(same(buffers[i], pattern(mix(peer, self, message), buffers[i].size())));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

const auto kKinds = testing::Values(Kind::Memory, Kind::Faulty, Kind::Tcp, Kind::TcpEvent,
                                    Kind::TcpPoll, Kind::TcpTls, Kind::UcxAutomatic, Kind::UcxEager,
                                    Kind::UcxRendezvous, Kind::UcxDevice);
INSTANTIATE_TEST_SUITE_P(All, Pair, kKinds, name_of);
INSTANTIATE_TEST_SUITE_P(All, Wires, kKinds, name_of);

}  // namespace
}  // namespace tenuto
