// Wires over a simulated network in which connections break at drawn bytes: every message arrives
// once and whole, and no peer is reported lost. TENUTO_BREAKS=100000 asks for as many breaks.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "breaks.h"
#include "simulated_wires.h"

namespace tenuto::tcp {
namespace {

using std::chrono::milliseconds;

constexpr Duration kSoon = std::chrono::milliseconds(1), kNever = std::chrono::hours(2);

// On this network a message to the other end takes up to 2 ms, an end hears of a break up to 3 ms
// later, and opening a connection takes four times a message's way. A repair has no longer pause
// than this, from when its end has heard of the network's last break or refusal until the new
// connection is open; and it takes no longer as a whole, from when its end has heard of the first
// break, if meanwhile the network has broken or refused at most kFewTroubles attempts.
constexpr Duration kLongestPause = milliseconds(50);
constexpr int64_t kFewTroubles = 2;

struct Totals {
  int64_t breaks = 0, messages = 0, sent_again = 0, kept = 0, plays = 0;
  int64_t repairs = 0, long_ones = 0, most_troubles = 0;
  Duration longest{}, longest_pause{};
};

// Checks the repairs that the end that dials has made since the last look, all in the turn at this
// moment.
void look_at_repairs(const SimulatedWire& wire, Duration moment, size_t& seen, Totals& totals) {
  for (; seen < wire.tally.repairs.size(); ++seen) {
    const Duration took = wire.tally.repairs[seen].took;
    Duration last = moment - took;
    int64_t troubles = 0;
    for (const Duration heard : SimulatedNetwork::troubles_of(*wire.host)) {
      if (heard <= moment - took || heard > moment) continue;
      last = std::max(last, heard);
      ++troubles;
    }
    EXPECT_LE(moment - last, kLongestPause) << "at " << to_milliseconds(moment) << " ms";
    EXPECT_TRUE(troubles > kFewTroubles || took <= kLongestPause)
        << to_milliseconds(took) << " ms with " << troubles << " more breaks and refusals";
    ++totals.repairs;
    totals.long_ones += took > kLongestPause ? 1 : 0;
    totals.most_troubles = std::max(totals.most_troubles, troubles);
    totals.longest = std::max(totals.longest, took);
    totals.longest_pause = std::max(totals.longest_pause, moment - last);
  }
}

void play(uint64_t seed, const TlsContext& context, Totals& totals) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(mix(seed, 77));
  NetworkFaults faults;
  faults.mean_bytes = 50000 << random.below(8);
  // Over TLS every connection begins with a handshake of 2 ms, so fewer of them are made.
  if (context != nullptr) faults.mean_bytes = std::max<int64_t>(faults.mean_bytes, 1 << 20);
  faults.refused_of_100 = static_cast<int>(random.below(20));
  faults.unanswered_of_100 = static_cast<int>(std::max<int64_t>(random.below(10) - 5, 0));
  faults.most_latency = std::chrono::microseconds(1 << random.below(12));
  SimulatedNetwork network(seed, faults);
  TcpSettings settings;
  settings.sends_end_there = random.below(4) == 0;
  SimulatedWire left(network, hello_of(0), settings, seed, context),
      right(network, hello_of(1), settings, seed + 1, context);
  Traffic there(left, right.self, 60, seed), back(right, left.self, 60, seed);
  left.connect(right, Ticket{1});
  const std::vector<SimulatedWire*> both{&left, &right};
  // An attempt that is never answered takes as long as it takes.
  const bool answers = faults.unanswered_of_100 == 0;
  size_t seen = 0;
  bool connected = false;
  for (int turns = 0; !(connected && there.done() && back.done()); ++turns) {
    ASSERT_LT(turns, 3000000) << "calls never ended";
    ASSERT_LT(network.now(), std::chrono::hours(1)) << "calls never ended";
    // While no call can be made, the clock moves only by what the wires and the network wait for: a
    // wire that waits for nothing although it has something to do is found out.
    const bool calls = (connected && there.may_begin()) || back.may_begin();
    const Duration moment = network.now();
    turn_all(network, both, moment + (calls ? kSoon : kNever));
    if (answers) look_at_repairs(left, moment, seen, totals);
    auto& reports = left.mailbox.reports;
    if (!connected && !reports.empty() && reports.front().ticket == Ticket{1}) {
      ASSERT_TRUE(reports.front().status.ok()) << reports.front().status.error().message;
      reports.pop_front();
      connected = true;
    }
    if (connected) there.step();
    back.step();
    if (random.below(2000) == 0) left.engine->break_connection(right.self, random.below(3));
    if (random.below(2000) == 0) right.engine->break_connection(left.self, random.below(3));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(left.tally.malformed + right.tally.malformed, 0);
  EXPECT_EQ(there.ended(), 120);
  EXPECT_EQ(back.ended(), 120);
  totals.breaks += network.breaks();
  totals.messages += 120;
  totals.sent_again += left.tally.sent_again + right.tally.sent_again;
  totals.kept += left.tally.kept + right.tally.kept;
  ++totals.plays;
}

void play_many(const TlsContext& context, int64_t breaks, int64_t plays) {
  Totals totals;
  const char* first = std::getenv("TENUTO_FIRST");
  for (uint64_t seed = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
       (totals.breaks < breaks || totals.plays < plays) && !testing::Test::HasFailure(); ++seed) {
    play(seed, context, totals);
  }
  EXPECT_GT(totals.sent_again, 0);
  EXPECT_TRUE(totals.kept > 0 || context != nullptr);
  std::printf(
      "%ld plays, %ld messages, %ld connections broken, %ld messages sent again, %ld kept\n"
      "%ld repairs where the port answers: the longest pause %.1f ms, the longest repair %.1f ms, "
      "%ld took longer than 50 ms, at most %ld breaks and refusals in one\n",
      totals.plays, totals.messages, totals.breaks, totals.sent_again, totals.kept, totals.repairs,
      to_milliseconds(totals.longest_pause), to_milliseconds(totals.longest), totals.long_ones,
      totals.most_troubles);
}

TEST(TcpMend, EveryMessageArrivesOnceWhateverBreaks) {
  play_many(nullptr, wanted_breaks(2000), kSanitized ? 4 : 16);
}

// A tenth of the breaks: over TLS each attempt, also one that breaks within its handshake, costs
// both ends a whole handshake, because keys do not outlive their connection (decision 77). So a
// break takes 2 to 3 ms of processor time, half of it in OpenSSL, and 100,000 would take four
// minutes.
TEST(TcpMend, EveryMessageArrivesOnceOverTls) {
  play_many(test_context(), wanted_breaks(3000) / 10, kSanitized ? 2 : 6);
}

// Connections that carry nothing any more while new ones work, in the middle of anything.
TEST(TcpMend, EveryMessageArrivesOnceWhenConnectionsCarryNothing) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 4 : 12); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(mix(seed, 78));
    SimulatedNetwork network(seed, {});
    TcpSettings settings;
    settings.mend_limit = milliseconds(300);
    SimulatedWire left(network, hello_of(0), settings, seed),
        right(network, hello_of(1), settings, seed + 1);
    Traffic there(left, right.self, 60, seed), back(right, left.self, 60, seed);
    left.connect(right, Ticket{1});
    while (left.mailbox.reports.empty()) turn_all(network, {&left, &right}, kNever);
    left.mailbox.reports.clear();
    size_t swallowed = 0;
    for (int turns = 0; !(there.done() && back.done()); ++turns) {
      ASSERT_LT(turns, 3000000) << "calls never ended";
      ASSERT_LT(network.now(), kNever) << "calls never ended";
      const bool calls = there.may_begin() || back.may_begin();
      turn_all(network, {&left, &right}, network.now() + (calls ? kSoon : kNever));
      there.step();
      back.step();
      // One at a time, so that each is mended within the limit.
      if (left.tally.repairs.size() == swallowed && random.below(100) == 0) {
        network.swallow(*left.host, silence_before_break(settings));
        ++swallowed;
      }
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(swallowed, 0u);
    EXPECT_GT(left.tally.broken, 0);
    EXPECT_EQ(left.tally.malformed + right.tally.malformed, 0);
  }
}

// Whichever end breaks the connection while it writes, or both at once: on the network's clock the
// repair takes a few latencies and no pause.
TEST(TcpMend, ABreakIsRepairedAtOnce) {
  for (const auto& [left_breaks, right_breaks] : {std::pair{1, 0}, {0, 1}, {1, 1}}) {
    SimulatedNetwork network(7, {});
    SimulatedWire left(network, hello_of(0), {}, 1), right(network, hello_of(1), {}, 2);
    left.connect(right, Ticket{1});
    const auto run_until = [&](const auto& done, Duration limit) {
      const Duration begin = network.now();
      while (!done() && network.now() < begin + limit) {
        left.mailbox.reports.clear();
        right.mailbox.reports.clear();
        turn_all(network, {&left, &right}, begin + limit);
      }
      return network.now() - begin;
    };
    std::vector<std::byte> bytes(100), to_left(100), to_right(100);
    left.engine->recv(right.self, {0, 0, 1}, to_left, {}, Ticket{2});
    right.engine->recv(left.self, {0, 0, 2}, to_right, {}, Ticket{2});
    run_until([] { return false; }, std::chrono::seconds(1));
    if (left_breaks != 0) left.engine->break_connection(right.self, 1);
    if (right_breaks != 0) right.engine->break_connection(left.self, 1);
    left.engine->send(right.self, {0, 0, 2}, bytes, {}, Ticket{3});
    right.engine->send(left.self, {0, 0, 1}, bytes, {}, Ticket{3});
    const Duration took = run_until([&] { return !left.tally.repairs.empty(); }, kNever);
    EXPECT_LT(took, milliseconds(3)) << left_breaks << right_breaks;
    EXPECT_EQ(left.tally.repairs.size(), 1u);
  }
}

// A host that accepts every connection and closes it, as a proxy without a worker behind it does,
// is asked ever more seldom, although each attempt reaches it.
TEST(TcpMend, AHostThatClosesEveryConnectionIsAskedMoreSeldom) {
  SimulatedNetwork network(9, {});
  SimulatedWire left(network, hello_of(0), {}, 1);
  const std::unique_ptr<Sockets> proxy = network.host();
  const auto address = proxy->listen("127.0.0.1", 0);
  left.engine->connect(WorkerId{1}, address.value(), resolve(address.value()).value(), Ticket{1});
  const Duration begin = network.now();
  std::vector<Duration> accepted;
  std::vector<SocketEvent> events;
  while (left.mailbox.reports.empty() && network.now() < begin + kNever) {
    turn_all(network, {&left}, begin + kNever);
    proxy->wait({}, events);
    SocketAddress from;
    for (SocketId each; (each = proxy->accept(from)) != kNoSocket;) {
      accepted.push_back(network.now());
      proxy->close(each, true);
    }
  }
  ASSERT_EQ(left.mailbox.reports.size(), 1u);
  EXPECT_EQ(left.mailbox.reports.front().status.error().code, Code::Timeout);
  EXPECT_GT(accepted.size(), 150u);
  EXPECT_LT(accepted.size(), 350u);
  EXPECT_LT(accepted[1] - accepted[0], milliseconds(3));
  EXPECT_GE(accepted.back() - accepted[accepted.size() - 2], milliseconds(50));
}

// A wire that is about to close, and a peer that has asked it for messages and for one more: for
// small ones, which all leave at once, or also for large ones. The peer sends a large message, too,
// which ends only when it has arrived.
struct Closing {
  Closing(uint64_t seed, bool dials, bool large, const TlsContext& context)
      : network(seed, {}),
        left(network, hello_of(0), settings(!dials), seed, context),
        right(network, hello_of(1), settings(dials), seed + 1, context),
        closes(dials ? left : right),
        stays(dials ? right : left) {
    left.connect(right, Ticket{1});
    for (size_t i = 0; i < 40; ++i) {
      out.push_back(pattern(i, large && i % 13 == 12 ? 200000 : i * 100));
      in.emplace_back(out.back().size());
    }
    in.emplace_back(10);  // is never sent
    for (size_t i = 0; i < in.size(); ++i) {
      stays.engine->recv(closes.self, {0, 0, i}, in[i], {}, Ticket{i + 2});
    }
    turn_until([] { return false; }, std::chrono::seconds(1));
  }
  static TcpSettings settings(bool sends_end_there) {
    TcpSettings settings;
    settings.sends_end_there = sends_end_there;
    return settings;
  }
  // Makes the calls behind which the wire closes.
  void send_all() {
    for (size_t i = 0; i < out.size(); ++i) {
      closes.engine->send(stays.self, {0, 0, i}, out[i], {}, Ticket{i + 2});
    }
    stays.engine->send(closes.self, {0, 0, kBack}, back_out, {}, Ticket{kBack + 2});
    closes.engine->recv(stays.self, {0, 0, kBack}, back_in, {}, Ticket{kBack + 2});
  }
  // Turns both loops until that is so, for so long at most; after the close, that of the peer.
  template <class Reached>
  void turn_until(Reached reached, Duration limit = std::chrono::minutes(1)) {
    const Duration end = network.now() + limit;
    while (!reached() && network.now() < end) turn(end);
  }
  void turn(Duration end) {
    if (closes.engine->closed()) network.kill(*closes.host);
    std::vector<SimulatedWire*> live{&stays};
    if (!closes.engine->closed()) live.push_back(&closes);
    turn_all(network, live, end);
    for (SimulatedWire* wire : {&closes, &stays}) {
      for (; !wire->mailbox.reports.empty(); wire->mailbox.reports.pop_front()) {
        const Done& done = wire->mailbox.reports.front();
        // That the peer is lost may be told behind its last message.
        const uint64_t ticket = static_cast<uint64_t>(done.ticket);
        if (ticket < 2) continue;
        const bool out_there = (wire == &closes) == (ticket - 2 != kBack);
        (out_there ? sent : received)[ticket - 2].push_back(done.status);
      }
    }
  }
  static constexpr size_t kBack = 100;

  SimulatedNetwork network;
  SimulatedWire left, right;
  SimulatedWire &closes, &stays;
  std::vector<std::vector<std::byte>> out, in;
  std::vector<std::byte> back_out = pattern(1, 1000000), back_in = back_out;
  std::map<size_t, std::vector<Status>> sent, received;  // how calls ended
};

// The connection breaks at any moment while one of its wires closes: all that it was told to send
// arrives once.
TEST(TcpMend, WhatWasSentArrivesAlthoughAConnectionBreaksInClosing) {
  int64_t moments = 0, repaired = 0;
  struct Case {
    bool dials = false, large = false, tls = false;
  };
  for (const auto& [dials, large, tls] :
       {Case{true, true}, Case{true, false}, Case{false, true}, Case{false, false},
        Case{true, false, true}, Case{false, false, true}}) {
    bool closed = false;
    for (int moment = -1; !closed; ++moment, ++moments) {
      SCOPED_TRACE(testing::Message()
                   << "dials " << dials << ", large " << large << ", moment " << moment);
      Closing two(mix(static_cast<uint64_t>(moment + 1), 79), dials, large,
                  tls ? test_context() : nullptr);
      two.send_all();
      if (moment < 0) two.closes.engine->break_connection(two.stays.self, 0);
      two.closes.engine->close(std::chrono::seconds(30));
      for (int turn = 0; turn < moment; ++turn) two.turn(kNever);
      closed = two.closes.engine->closed();
      if (moment >= 0) two.network.break_all(*two.closes.host);
      two.turn_until([&] { return two.closes.engine->closed(); });
      EXPECT_TRUE(two.closes.engine->closed());
      two.turn_until([&] { return two.received.size() == two.in.size() + 1; });
      for (size_t i = 0; i < two.in.size(); ++i) {
        const bool was_sent = i < two.out.size();
        ASSERT_EQ(two.received[i].size(), 1u) << "message " << i;
        ASSERT_EQ(two.received[i].front().ok(), was_sent) << "message " << i;
        if (!was_sent) continue;
        EXPECT_TRUE(same(two.in[i], two.out[i])) << "message " << i;
        ASSERT_EQ(two.sent[i].size(), 1u) << "message " << i;
        EXPECT_TRUE(two.sent[i].front().ok()) << two.sent[i].front().error().message;
      }
      // The peer must not be told that its message has arrived where it has not.
      ASSERT_EQ(two.received[Closing::kBack].size(), 1u);
      ASSERT_EQ(two.sent[Closing::kBack].size(), 1u);
      EXPECT_TRUE(two.received[Closing::kBack].front().ok() ||
                  !two.sent[Closing::kBack].front().ok());
      EXPECT_EQ(two.closes.tally.malformed + two.stays.tally.malformed, 0);
      EXPECT_TRUE(!closed || two.closes.tally.broken == 0) << "an orderly close is no break";
      repaired += two.closes.tally.broken;
    }
  }
  std::printf("%ld moments, %ld repairs\n", moments, repaired);
  EXPECT_GT(repaired, moments / 2);
}

// A wire that still waits for a message to leave opens nothing new; who connects to it tries again.
TEST(TcpMend, AClosingWireOpensNothingNew) {
  SimulatedNetwork network(11, {});
  TcpSettings settings;
  settings.connect_limit = std::chrono::seconds(1);
  SimulatedWire left(network, hello_of(0), settings, 1), right(network, hello_of(1), settings, 2),
      late(network, hello_of(2), settings, 3);
  const std::vector<SimulatedWire*> all{&left, &right, &late};
  left.connect(right, Ticket{1});
  while (left.mailbox.reports.empty()) turn_all(network, all, kNever);
  left.mailbox.reports.clear();
  const std::vector<std::byte> bytes(100);
  left.engine->send(right.self, {0, 0, 1}, bytes, {}, Ticket{2});
  left.engine->close(std::chrono::seconds(5));
  late.connect(left, Ticket{3});
  while (late.mailbox.reports.empty() && !left.engine->closed()) turn_all(network, all, kNever);
  ASSERT_EQ(late.mailbox.reports.size(), 1u);
  EXPECT_EQ(late.mailbox.reports.front().status.error().code, Code::Timeout);
}

// A dead peer is known after three refusals, which is a few milliseconds on the network's clock.
TEST(TcpMend, ADeathIsKnownSoon) {
  for (int end = 0; end < 2; ++end) {
    SimulatedNetwork network(8, {});
    SimulatedWire left(network, hello_of(0), {}, 1), right(network, hello_of(1), {}, 2);
    left.connect(right, Ticket{1});
    while (network.now() < std::chrono::seconds(2)) {
      turn_all(network, {&left, &right}, std::chrono::seconds(3));
      left.mailbox.reports.clear();
    }
    SimulatedWire& dies = end == 0 ? left : right;
    SimulatedWire& lives = end == 0 ? right : left;
    network.kill(*dies.host);
    const Duration begin = network.now();
    while (lives.mailbox.reports.empty() && network.now() < begin + kNever) {
      turn_all(network, {&lives}, begin + kNever);
    }
    ASSERT_EQ(lives.mailbox.reports.size(), 1u);
    EXPECT_EQ(lives.mailbox.reports.front().peer, dies.self);
    EXPECT_NE(lives.mailbox.reports.front().status.error().message.find("nobody listens at"),
              std::string::npos);
    EXPECT_LT(network.now() - begin, milliseconds(5));
  }
}

}  // namespace
}  // namespace tenuto::tcp
