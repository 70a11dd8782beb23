// Messages of server shards between processes: over the transport within a process, and over TCP on
// loopback.
#include "parameter_server/peer_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "random_messages.h"
#include "sanitized.h"
#include "transport/tcp_party.h"

namespace tenuto::servers {
namespace {

constexpr Tag kFirstNotice{-3, 0, 0}, kFirstPayload{-3, 0, 2};
constexpr int64_t kMebibyte = 1 << 20;

enum class Kind { Memory, Tcp, TcpEvent };

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  const char* names[] = {"Memory", "Tcp", "TcpEvent"};
  return names[static_cast<size_t>(info.param)];
}

// A process: its mailbox, its transport and its end of all messages.
struct Process {
  Process(const Party::Make& make, Hello hello)
      : self(hello.self), wire(make(hello, mailbox)), net(*wire, mailbox, self) {}

  // What comes next.
  PeerNet::Arrivals next() {
    auto arrivals = net.wait(kPatience);
    EXPECT_TRUE(arrivals.ok()) << arrivals.error().message;
    if (!arrivals.ok()) return {};
    EXPECT_FALSE(arrivals.value().messages.empty() && arrivals.value().lost.empty())
        << "nothing has come to process " << self.value;
    EXPECT_EQ(arrivals.value().lost.size(), arrivals.value().reasons.size());
    return std::move(arrivals).value();
  }
  // So many messages at least, while nobody is lost.
  std::vector<PeerNet::Incoming> receive(size_t count) {
    std::vector<PeerNet::Incoming> all;
    while (all.size() < count && !testing::Test::HasFailure()) {
      PeerNet::Arrivals arrivals = next();
      EXPECT_TRUE(arrivals.lost.empty()) << arrivals.reasons.front();
      std::move(arrivals.messages.begin(), arrivals.messages.end(), std::back_inserter(all));
    }
    return all;
  }
  // The messages that come until a process is lost, which is `lost`.
  std::vector<PeerNet::Incoming> receive_until_loss(WorkerId lost) {
    std::vector<PeerNet::Incoming> all;
    while (!testing::Test::HasFailure()) {
      PeerNet::Arrivals arrivals = next();
      std::move(arrivals.messages.begin(), arrivals.messages.end(), std::back_inserter(all));
      if (arrivals.lost.empty()) continue;
      EXPECT_EQ(arrivals.lost, std::vector<WorkerId>{lost});
      EXPECT_FALSE(arrivals.reasons.front().empty());
      break;
    }
    return all;
  }
  // Waits until the transport has given back the memory of all payloads.
  void finish_sends() {
    for (int i = 0; i < 6000 && net.unsent().count > 0; ++i) expect_quiet();
    EXPECT_EQ(net.unsent(), Bytes{});
  }
  // Nothing comes for a while.
  void expect_quiet() {
    const auto arrivals = net.wait(std::chrono::milliseconds(10));
    ASSERT_TRUE(arrivals.ok()) << arrivals.error().message;
    EXPECT_TRUE(arrivals.value().messages.empty());
    EXPECT_TRUE(arrivals.value().lost.empty());
  }
  void send(WorkerId to, const Message& message) {
    const Status status = net.send(to, message);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }

  WorkerId self;
  QueueMailbox mailbox;
  std::unique_ptr<Transport> wire;
  PeerNet net;
};

class PeerNets : public testing::TestWithParam<Kind> {
 protected:
  Party::Make make() {
    if (GetParam() == Kind::Tcp) return make_tcp();
    if (GetParam() == Kind::TcpEvent) return make_driven_tcp(WireProgress::Event);
    return [this](Hello hello, Mailbox& mailbox) {
      return make_memory_transport(network_, std::move(hello), mailbox);
    };
  }
  std::unique_ptr<Process> process(int number) {
    return std::make_unique<Process>(make(), hello_of(number));
  }
  static void connect(Process& from, WorkerId to, const Address& address) {
    EXPECT_TRUE(from.wire->connect(to, address, Ticket{1}).ok());
  }
  static void join(Process& left, Process& right) {
    EXPECT_TRUE(left.net.open(right.self).ok());
    EXPECT_TRUE(right.net.open(left.self).ok());
    connect(left, right.self, right.wire->address());
  }

  MemoryNetwork network_;
};

class PeerNetPair : public PeerNets {
 protected:
  void SetUp() override {
    left_ = process(0);
    right_ = process(1);
    join(*left_, *right_);
    // A process that ends before it is connected is not known to be lost until `connect_limit`.
    left_->send(WorkerId{1}, {{}, Stored{0}});
    right_->receive(1);
  }

  std::unique_ptr<Process> left_, right_;
};

// The messages from one process to another in a test with this seed.
std::vector<Message> messages_of(uint64_t seed, WorkerId from, WorkerId to, size_t count) {
  Random random(mix(seed, static_cast<uint64_t>(from.value), static_cast<uint64_t>(to.value)));
  std::vector<Message> all;
  for (size_t i = 0; i < count; ++i) {
    const auto kind = static_cast<size_t>(random.below(static_cast<int64_t>(kMessageKinds)));
    const int64_t most_payload = random.below(10) == 0 ? 100'000 : 100;
    all.push_back(random_message(random, kind, most_payload));
  }
  return all;
}

// Those of `incoming` that are from `from` are the first of `sent`, in order. Returns how many.
size_t expect_first(const std::vector<PeerNet::Incoming>& incoming, WorkerId from,
                    const std::vector<Message>& sent) {
  size_t count = 0;
  for (const PeerNet::Incoming& each : incoming) {
    if (each.from != from) continue;
    EXPECT_TRUE(count < sent.size() && are_same(each.message, sent[count])) << count;
    ++count;
  }
  return count;
}

void expect_error(const Status& status, Code code, const std::string& part) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, code);
  EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

// ---- order -------------------------------------------------------------------------------------

TEST_P(PeerNets, MessagesArriveInTheOrderOfSending) {
  constexpr size_t kCount = 60;
  std::vector<std::unique_ptr<Process>> all;
  for (int i = 0; i < 3; ++i) all.push_back(process(i));
  for (int i = 0; i < 3; ++i) join(*all[i], *all[(i + 1) % 3]);
  for (const auto& from : all) {
    for (const auto& to : all) {
      for (const Message& message : messages_of(1, from->self, to->self, kCount)) {
        from->send(to->self, message);
      }
    }
  }
  for (const auto& to : all) {
    const std::vector<PeerNet::Incoming> incoming = to->receive(3 * kCount);
    for (const auto& from : all) {
      EXPECT_EQ(expect_first(incoming, from->self, messages_of(1, from->self, to->self, kCount)),
                kCount);
    }
  }
}

// Three processes in threads of their own.
TEST_P(PeerNets, ManyMessagesEachWayAtOnce) {
  constexpr size_t kCount = kSanitized ? 60 : 300;
  std::vector<std::unique_ptr<Process>> all;
  for (int i = 0; i < 3; ++i) all.push_back(process(i));
  for (int i = 0; i < 3; ++i) join(*all[i], *all[(i + 1) % 3]);
  std::vector<std::vector<PeerNet::Incoming>> incoming(3);
  const auto run = [&](size_t own) {
    Process& self = *all[own];
    std::vector<std::vector<Message>> out;
    for (const auto& to : all) out.push_back(messages_of(2, self.self, to->self, kCount));
    for (size_t i = 0; i < kCount; ++i) {
      for (const auto& to : all) {
        if (to->self != self.self) self.send(to->self, out[to->self.value][i]);
      }
      auto arrivals = self.net.wait(Duration::zero());
      EXPECT_TRUE(arrivals.ok());
      for (auto& each : arrivals.value().messages) incoming[own].push_back(std::move(each));
    }
    for (auto& each : self.receive(2 * kCount - incoming[own].size())) {
      incoming[own].push_back(std::move(each));
    }
  };
  std::vector<std::thread> threads;
  for (size_t own = 0; own < 3; ++own) threads.emplace_back(run, own);
  for (std::thread& thread : threads) thread.join();
  for (size_t own = 0; own < 3; ++own) {
    for (const auto& from : all) {
      const WorkerId to = all[own]->self;
      if (from->self == to) continue;
      EXPECT_EQ(expect_first(incoming[own], from->self, messages_of(2, from->self, to, kCount)),
                kCount);
    }
  }
}

TEST_P(PeerNetPair, AProcessSendsToItselfAndStillHearsOthers) {
  Random random(3);
  const Message own = random_message(random, 7), other = random_message(random, 8);
  right_->send(WorkerId{0}, other);
  bool has_heard = false;
  const Duration until = monotonic_clock().now() + kPatience;
  while (!has_heard && monotonic_clock().now() < until) {
    left_->send(WorkerId{0}, own);
    left_->send(WorkerId{0}, other);
    const PeerNet::Arrivals arrivals = left_->next();
    ASSERT_GE(arrivals.messages.size(), 2u);
    EXPECT_EQ(expect_first(arrivals.messages, WorkerId{0}, {own, other}), 2u);
    has_heard = expect_first(arrivals.messages, WorkerId{1}, {other}) == 1;
  }
  EXPECT_TRUE(has_heard);
}

// A report without ticket and peer ends the wait, and nothing else comes of it.
TEST_P(PeerNetPair, OthersMayWakeTheMailbox) {
  left_->mailbox.post(Done{});
  const auto woken = left_->net.wait(kPatience);
  ASSERT_TRUE(woken.ok()) << woken.error().message;
  EXPECT_TRUE(woken.value().messages.empty());
  EXPECT_TRUE(woken.value().lost.empty());
  left_->send(WorkerId{1}, {{}, Stored{1}});
  right_->send(WorkerId{0}, {{}, Stored{2}});
  EXPECT_EQ(expect_first(left_->receive(1), WorkerId{1}, {{{}, Stored{2}}}), 1u);
  EXPECT_EQ(expect_first(right_->receive(1), WorkerId{0}, {{{}, Stored{1}}}), 1u);
}

// ---- sizes -------------------------------------------------------------------------------------

TEST_P(PeerNetPair, HeadsOfAllSizes) {
  std::vector<Message> sent;
  for (const int64_t size :
       {kHeadInNotice - 1, kHeadInNotice, kHeadInNotice + 1, kLargestHead - 1, kLargestHead}) {
    sent.push_back(message_with_head(size));
    EXPECT_EQ(std::ssize(encode(sent.back()).head), size);
    left_->send(WorkerId{1}, sent.back());
  }
  expect_error(left_->net.send(WorkerId{1}, message_with_head(kLargestHead + 1)), Code::Exhausted,
               "expected at most 1048576");
  sent.push_back({{}, Stored{5}});
  left_->send(WorkerId{1}, sent.back());
  EXPECT_EQ(expect_first(right_->receive(sent.size()), WorkerId{0}, sent), sent.size());
}

TEST_P(PeerNetPair, PayloadsOfNoBytesAndOfSeveralMebibytes) {
  Random random(4);
  const Payload nothing = random_payload(random, 0), large = random_payload(random, 5 * kMebibyte);
  Fill fill{large, {}, {}};
  fill.versions = {{{1}, nothing}, {{2}, random_payload(random, 3 * kMebibyte + 1)}, {{3}, large}};
  for (int64_t serial = 0; serial < 40; ++serial) {
    fill.gradients.push_back(
        {serial, {4}, serial % 2 == 0 ? nothing : random_payload(random, 999)});
  }
  const std::vector<Message> sent = {{{}, Parameters{nothing}},
                                     {{}, fill},
                                     {{}, Gradient{1, nothing}},
                                     {{}, Gradient{2, large}},
                                     {{}, Stored{5}}};
  for (const Message& message : sent) left_->send(WorkerId{1}, message);
  EXPECT_EQ(expect_first(right_->receive(sent.size()), WorkerId{0}, sent), sent.size());
  left_->finish_sends();
}

TEST_P(PeerNets, WhatIsNotTakenYetIsUnsent) {
  const auto left = process(0), right = process(1);
  ASSERT_TRUE(left->net.open(WorkerId{1}).ok());
  Random random(5);
  const Payload payload = random_payload(random, kMebibyte);
  for (int64_t i = 1; i <= 3; ++i) {
    left->send(WorkerId{1}, {{}, Gradient{i, payload}});
    EXPECT_EQ(left->net.unsent().count, i * kMebibyte);
  }
  const Duration before = monotonic_clock().now();
  EXPECT_EQ(left->net.emptied(), Duration{});
  EXPECT_GE(payload.use_count(), 4) << "payloads are kept, not copied";
  ASSERT_TRUE(right->net.open(WorkerId{0}).ok());
  connect(*left, WorkerId{1}, right->wire->address());
  right->receive(3);
  left->finish_sends();
  EXPECT_GE(left->net.emptied(), before);
  EXPECT_LE(left->net.emptied(), monotonic_clock().now());
}

TEST_P(PeerNetPair, WhatHasLeftIsCounted) {
  Random random(6);
  left_->send(WorkerId{1}, {{}, Gradient{1, random_payload(random, kMebibyte)}});
  right_->receive(1);
  left_->finish_sends();
  // With the notice of the first message of all.
  const int64_t expected = kMebibyte + 2 * kNoticeBytes;
  int64_t bytes = 0;
  for (int i = 0; i < 6000 && bytes < expected; ++i) {
    for (const auto& [to, count] : left_->net.take_sent()) {
      EXPECT_EQ(to, WorkerId{1});
      bytes += count;
    }
    left_->expect_quiet();
  }
  EXPECT_EQ(bytes, expected);
  EXPECT_TRUE(left_->net.take_sent().empty());
  EXPECT_TRUE(right_->net.take_sent().empty());
}

// ---- losses ------------------------------------------------------------------------------------

TEST_P(PeerNetPair, OfALostProcessTheFirstMessagesAreHere) {
  const std::vector<Message> sent = messages_of(6, WorkerId{1}, WorkerId{0}, 30);
  for (const Message& message : sent) right_->send(WorkerId{0}, message);
  const size_t count = expect_first(left_->receive(5), WorkerId{1}, sent);
  right_.reset();
  const std::vector<Message> rest(sent.begin() + static_cast<ptrdiff_t>(count), sent.end());
  expect_first(left_->receive_until_loss(WorkerId{1}), WorkerId{1}, rest);
  left_->expect_quiet();
}

TEST_P(PeerNetPair, ATransportThatIsClosedSendsAllBefore) {
  const std::vector<Message> sent = messages_of(7, WorkerId{1}, WorkerId{0}, 30);
  for (const Message& message : sent) right_->send(WorkerId{0}, message);
  Status closed = ok();
  std::thread closer([&] { closed = right_->wire->close(kPatience); });
  const auto incoming = left_->receive_until_loss(WorkerId{1});
  closer.join();
  EXPECT_TRUE(closed.ok()) << closed.error().message;
  EXPECT_EQ(expect_first(incoming, WorkerId{1}, sent), sent.size());
  expect_error(right_->net.send(WorkerId{0}, sent.front()), Code::Cancelled, "closed");
  EXPECT_TRUE(right_->receive_until_loss(WorkerId{0}).empty());
  EXPECT_EQ(right_->net.unsent(), Bytes{});
}

TEST_P(PeerNetPair, AMessageToALostProcessCostsNothing) {
  Random random(8);
  const Payload payload = random_payload(random, kMebibyte);
  for (int64_t i = 0; i < 4; ++i) left_->send(WorkerId{1}, {{}, Gradient{i, payload}});
  right_.reset();
  EXPECT_TRUE(left_->receive_until_loss(WorkerId{1}).empty());
  left_->finish_sends();
  left_->send(WorkerId{1}, {{}, Gradient{4, payload}});
  EXPECT_EQ(left_->net.unsent(), Bytes{});
  EXPECT_EQ(payload.use_count(), 1);
  left_->expect_quiet();
  expect_error(left_->net.open(WorkerId{1}), Code::Invalid, "needs a new number");
  // Another process is not affected.
  const auto third = process(2);
  join(*left_, *third);
  left_->send(WorkerId{2}, {{}, Stored{9}});
  EXPECT_EQ(expect_first(third->receive(1), WorkerId{0}, {{{}, Stored{9}}}), 1u);
}

TEST_P(PeerNetPair, NothingComesFromADroppedProcess) {
  left_->send(WorkerId{1}, {{}, Stored{1}});
  right_->receive(1);
  left_->send(WorkerId{1}, {{}, Stored{2}});
  right_->net.drop(WorkerId{0});
  EXPECT_TRUE(left_->receive_until_loss(WorkerId{1}).empty());
  left_->send(WorkerId{1}, {{}, Stored{3}});
  right_->send(WorkerId{0}, {{}, Stored{4}});
  right_->net.drop(WorkerId{0});
  right_->expect_quiet();
  left_->expect_quiet();
  expect_error(right_->net.open(WorkerId{0}), Code::Invalid, "needs a new number");
}

TEST_P(PeerNets, AConnectionThatCannotBeMadeIsALoss) {
  const auto left = process(0);
  Hello hello = hello_of(1);
  hello.token = "another";
  const Process stranger(make(), hello);
  ASSERT_TRUE(left->net.open(WorkerId{1}).ok());
  left->send(WorkerId{1}, {{}, Stored{1}});
  connect(*left, WorkerId{1}, stranger.wire->address());
  const PeerNet::Arrivals arrivals = left->next();
  EXPECT_EQ(arrivals.lost, std::vector<WorkerId>{WorkerId{1}});
  ASSERT_EQ(arrivals.reasons.size(), 1u);
  EXPECT_NE(arrivals.reasons[0].find("token"), std::string::npos) << arrivals.reasons[0];
  left->expect_quiet();
}

// ---- refusals ----------------------------------------------------------------------------------

TEST_P(PeerNets, WhatCannotBeOpenedOrSentIsRefused) {
  const auto self = process(3);
  expect_error(self->net.open(WorkerId{-1}), Code::Invalid, "another process");
  expect_error(self->net.open(WorkerId{3}), Code::Invalid, "another process");
  expect_error(self->net.send(WorkerId{4}, {{}, Stored{1}}), Code::Invalid, "was not opened");
  ASSERT_TRUE(self->net.open(WorkerId{4}).ok());
  expect_error(self->net.open(WorkerId{4}), Code::Invalid, "another process");
  self->net.drop(WorkerId{3});
  self->send(WorkerId{3}, {{}, Stored{1}});
  EXPECT_EQ(self->receive(1).size(), 1u) << "a process does not drop itself";
  ASSERT_TRUE(self->wire->close(Duration::zero()).ok());
  expect_error(self->net.open(WorkerId{5}), Code::Cancelled, "closed");
}

// A process that speaks to the transport itself.
class Stranger : public PeerNets {
 protected:
  void SetUp() override {
    process_ = process(0);
    stranger_ = std::make_unique<Party>(make(), hello_of(1));
    ASSERT_TRUE(process_->net.open(WorkerId{1}).ok());
    ASSERT_TRUE(stranger_->connect(WorkerId{0}, process_->wire->address()).ok());
  }
  void send(const Tag& tag, const std::vector<std::byte>& bytes) {
    sent_.push_back(bytes);
    const Status status =
        stranger_->wire->send(WorkerId{0}, tag, sent_.back(), {}, stranger_->fresh());
    EXPECT_TRUE(status.ok());
  }
  static std::vector<std::byte> notice(uint32_t length, const std::vector<std::byte>& head) {
    std::vector<std::byte> bytes(kNoticeBytes);
    std::memcpy(bytes.data(), &length, sizeof(length));
    std::copy(head.begin(), head.end(), bytes.begin() + sizeof(length));
    return bytes;
  }
  // The process refuses what was sent, and the stranger is lost.
  void expect_refusal(Code code, const std::string& part) {
    const auto arrivals = process_->net.wait(kPatience);
    expect_error(arrivals.ok() ? ok() : Status(arrivals.error()), code, part);
    EXPECT_TRUE(process_->receive_until_loss(WorkerId{1}).empty());
    process_->expect_quiet();
    EXPECT_EQ(stranger_->next_loss().peer, WorkerId{0});
  }

  std::unique_ptr<Process> process_;
  std::deque<std::vector<std::byte>> sent_;
  std::unique_ptr<Party> stranger_;
};

TEST_P(Stranger, WhoSendsATooLongHeadIsDropped) {
  send(kFirstNotice, notice(kLargestHead + 1, {}));
  expect_refusal(Code::Corrupt, "a message of 1048577 bytes without its payloads");
}

TEST_P(Stranger, WhoSendsNoMessageIsDropped) {
  send(kFirstNotice, notice(25, std::vector<std::byte>(25, std::byte{99})));
  expect_refusal(Code::Corrupt, "process 1 is dropped: a message of server shards is damaged");
}

TEST_P(Stranger, WhoSendsAPayloadOfAnotherSizeIsDropped) {
  Random random(9);
  const EncodedMessage encoded = encode({{}, Parameters{random_payload(random, 16)}});
  send(kFirstNotice, notice(static_cast<uint32_t>(encoded.head.size()), encoded.head));
  send(kFirstPayload, std::vector<std::byte>(8));
  expect_refusal(Code::Corrupt, "process 1 is dropped: worker 1 sends 8 bytes");
}

TEST_P(Stranger, WhoPromisesMorePayloadThanThereIsMemoryIsDropped) {
  EncodedMessage encoded = encode({{}, Parameters{nullptr}});
  encoded.head[31] = std::byte{0x10};  // 2^52 bytes
  ASSERT_EQ(payload_sizes(encoded.head).value(), std::vector<int64_t>{int64_t{1} << 52});
  send(kFirstNotice, notice(static_cast<uint32_t>(encoded.head.size()), encoded.head));
  expect_refusal(Code::Exhausted, "a message from process 1 needs 4194304.0 GiB of memory");
}

const auto kAll = testing::Values(Kind::Memory, Kind::Tcp, Kind::TcpEvent);
INSTANTIATE_TEST_SUITE_P(Over, PeerNets, kAll, name_of);
INSTANTIATE_TEST_SUITE_P(Over, PeerNetPair, kAll, name_of);
INSTANTIATE_TEST_SUITE_P(Over, Stranger, kAll, name_of);

}  // namespace
}  // namespace tenuto::servers
