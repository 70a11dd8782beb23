// One end of a wire over TCP as a function: what it writes in which order, and what it says to a
// peer that does not keep to the format.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "simulated_wires.h"
#include "transport/tcp/link.h"

namespace tenuto::tcp {
namespace {

// A link of worker 0 with worker 1, whose frames are read as they are written.
struct OneLink {
  // A frame and the size of what follows it.
  struct Written {
    Frame frame;
    size_t bytes = 0;
  };
  explicit OneLink(const LinkSettings& with = {}) : settings(with) { link.opened(); }

  void send(uint64_t name, std::span<const std::byte> bytes) {
    link.send({0, 0, name}, bytes, {}, Ticket{name});
  }
  // The peer posts a receive.
  Status grant(uint64_t number, uint64_t name, uint64_t size, uint64_t from = 0) {
    return say({FrameKind::Grant, 0, number, from, size, {0, 0, name}, {}});
  }
  Status say(const Frame& frame, size_t bytes = 0) {
    std::vector<std::byte> text(kLongestFrame + bytes, std::byte{3});
    const size_t size = encode(frame, text);
    return link.take(0, std::span(text).first(size + bytes), Duration{1});
  }
  // Writes what is staged at a time.
  std::vector<Written> write(Duration now = {}) {
    std::vector<std::byte> stream;
    for (const auto& each : link.gather(now)) stream.insert(stream.end(), each.begin(), each.end());
    link.written(stream.size(), Duration{1});
    std::vector<Written> all;
    for (std::span<const std::byte> rest(stream); !rest.empty();) {
      const size_t size = frame_size(rest);
      const auto frame = decode(rest.first(size));
      const bool follows =
          frame.value().kind == FrameKind::Start || frame.value().kind == FrameKind::Piece;
      all.push_back({frame.value(), follows ? frame.value().count : 0});
      rest = rest.subspan(size + all.back().bytes);
    }
    return all;
  }

  LinkSettings settings;
  Tally tally;
  ListMailbox mailbox;
  Link link{{0}, {1}, settings, tally, mailbox};
};

TEST(TcpFrame, EveryKindReadsBack) {
  for (uint8_t kind = 0; kind < 12; ++kind) {
    Frame frame{static_cast<FrameKind>(kind), 1, 2, 3, 4, {5, 6, 7}, {Duration(8), {}, 9}};
    std::array<std::byte, kLongestFrame> bytes{};
    const size_t size = encode(frame, bytes);
    const auto read = decode(std::span(bytes).first(size));
    if (kind < 1 || kind > 7) {
      EXPECT_FALSE(read.ok());
      continue;
    }
    ASSERT_TRUE(read.ok());
    std::array<std::byte, kLongestFrame> again{};
    EXPECT_EQ(encode(read.value(), again), size);
    EXPECT_EQ(bytes, again);
    for (size_t shorter = 0; shorter < size; ++shorter) {
      EXPECT_FALSE(decode(std::span(bytes).first(shorter)).ok());
    }
    bytes[2] = std::byte{1};
    EXPECT_FALSE(decode(std::span(bytes).first(size)).ok());
  }
}

// Grants and small messages go ahead of what is left of a large one; of two large ones, the one
// that was posted first.
TEST(TcpLink, WhatIsUrgentOvertakes) {
  OneLink one;
  std::vector<std::byte> large(4 * kPiece), small(100), got(10);
  one.write();  // AllGranted
  one.send(1, large);
  one.send(2, large);
  ASSERT_TRUE(one.grant(1, 2, large.size()).ok());
  auto written = one.write();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].frame.grant, 1u);
  EXPECT_EQ(written[0].bytes, kPiece);
  ASSERT_TRUE(one.grant(2, 1, large.size()).ok());
  ASSERT_TRUE(one.grant(3, 3, small.size()).ok());
  one.send(3, small);
  one.link.recv({0, 0, 9}, got, {}, Ticket{9});
  written = one.write();
  ASSERT_EQ(written.size(), 3u);
  EXPECT_EQ(written[0].frame.kind, FrameKind::Grant);
  EXPECT_EQ(written[1].frame.grant, 3u);
  EXPECT_EQ(written[1].bytes, small.size());
  EXPECT_EQ(written[2].frame.grant, 2u) << "it was posted before the one that is under way";
  EXPECT_EQ(written[2].frame.kind, FrameKind::Start);
  for (int piece = 0; piece < 3; ++piece) EXPECT_EQ(one.write()[0].frame.grant, 2u);
  EXPECT_EQ(one.write()[0].frame.grant, 1u);
}

Purpose purpose_by_step(const Tag& tag) {
  return tag.step == 1 ? Purpose::Transfer : Purpose::Step;
}

// What is left of a state transfer goes behind the large messages of steps that come meanwhile.
TEST(TcpLink, StepsOvertakeTransfers) {
  LinkSettings settings;
  settings.purpose_of = purpose_by_step;
  OneLink one(settings);
  std::vector<std::byte> large(3 * kPiece);
  one.write();  // AllGranted
  one.link.send({0, 1, 1}, large, {}, Ticket{1});
  ASSERT_TRUE(one.say({FrameKind::Grant, 0, 1, 0, large.size(), {0, 1, 1}, {}}).ok());
  EXPECT_EQ(one.write()[0].frame.grant, 1u);
  one.send(2, large);
  ASSERT_TRUE(one.grant(2, 2, large.size()).ok());
  for (const uint64_t grant : {2, 2, 2, 1, 1}) EXPECT_EQ(one.write()[0].frame.grant, grant);
  EXPECT_TRUE(one.write().empty());
}

// Sends for `lasts` over a link whose rates are those of `pace`, written as soon as a piece may
// leave, but up to 1 ms late. Returns the bytes that have left by purpose.
std::array<double, kPurposes> sent_under(const std::shared_ptr<SendPace>& pace, Duration lasts) {
  LinkSettings settings;
  settings.purpose_of = purpose_by_step;
  settings.pace = pace;
  OneLink one(settings);
  Random random(4);
  std::vector<std::byte> large(64 * kPiece);
  std::array<double, kPurposes> sent{};
  uint64_t name = 0;
  std::map<uint64_t, size_t> purpose_of_grant;
  one.write();
  const auto post = [&](size_t purpose) {
    const Tag tag{0, static_cast<int64_t>(purpose), ++name};
    purpose_of_grant[name] = purpose;
    one.link.send(tag, large, {}, Ticket{name});
    EXPECT_TRUE(one.say({FrameKind::Grant, 0, name, 0, large.size(), tag, {}}).ok());
  };
  post(0);
  post(1);
  std::array<size_t, kPurposes> left = {64, 64};
  for (Duration now = std::chrono::seconds(1); now < std::chrono::seconds(1) + lasts;) {
    const auto written = one.write(now);
    for (const auto& each : written) {
      if (each.bytes == 0) continue;
      const size_t purpose = purpose_of_grant.at(each.frame.grant);
      sent[purpose] += static_cast<double>(each.bytes);
      if (--left[purpose] > 0) continue;
      left[purpose] = 64;
      post(purpose);
    }
    if (!written.empty()) continue;
    EXPECT_GT(one.link.held_until(), now) << "it waits for nothing";
    if (one.link.held_until() == Duration::max()) break;
    now = one.link.held_until() + Duration(random.below(1'000'000));
  }
  return sent;
}

TEST(TcpLink, KeepsToTheRateOfEachPurpose) {
  const auto pace = std::make_shared<SendPace>();
  pace->set_others(Purpose::Step, 1e9);
  pace->set({1}, Purpose::Step, 4e7);
  pace->set({2}, Purpose::Step, 1e6);
  pace->set_others(Purpose::Transfer, 5e6);
  const auto sent = sent_under(pace, std::chrono::seconds(4));
  EXPECT_NEAR(sent[0], 4 * 4e7, 4 * 4e7 * 0.03);
  EXPECT_NEAR(sent[1], 4 * 5e6, 4 * 5e6 * 0.03);
}

// All peers together have a rate. Within a link the messages of steps still go ahead.
TEST(TcpLink, KeepsToTheTotalRate) {
  const auto pace = std::make_shared<SendPace>();
  pace->set_total(2e7, {{7}, {8}});
  const auto sent = sent_under(pace, std::chrono::seconds(4));
  EXPECT_NEAR(sent[0], 4 * 2e7, 4 * 2e7 * 0.03);
  EXPECT_EQ(sent[1], 0);
}

TEST(SendPace, PeersTakeTurnsInTheTotal) {
  SendPace pace;
  const Bytes piece{1'000'000};
  const Duration now = std::chrono::seconds(5);
  EXPECT_EQ(pace.reserve({1}, piece, now), now) << "there is no total";
  pace.set_total(1e6, {{3}});
  EXPECT_EQ(pace.reserve({1}, piece, now), now);
  const Duration second = pace.reserve({2}, piece, now), third = pace.reserve({1}, piece, now);
  EXPECT_NEAR(to_milliseconds(second - now), 1000, 10);
  EXPECT_NEAR(to_milliseconds(third - now), 2000, 10);
  EXPECT_EQ(pace.reserve({3}, piece, now), now) << "it is spared";
  // With another rate what is left of the wait changes, too.
  pace.set_total(5e5, {{3}});
  pace.set_total(1e7, {{3}});
  EXPECT_NEAR(to_milliseconds(pace.reserve({2}, piece, now) - now), 300, 10);
  pace.set_total(0, {});
  EXPECT_EQ(pace.reserve({2}, piece, now), now);
}

// A paced message whose connection breaks waits for nothing until it is granted again.
TEST(TcpLink, APacedMessageSurvivesABreak) {
  LinkSettings settings;
  settings.purpose_of = purpose_by_step;
  const auto pace = std::make_shared<SendPace>();
  pace->set_others(Purpose::Step, 1e6);
  settings.pace = pace;
  OneLink one(settings);
  std::vector<std::byte> large(2 * kPiece);
  one.write();
  one.send(1, large);
  ASSERT_TRUE(one.grant(1, 1, large.size()).ok());
  EXPECT_EQ(one.write(Duration{1})[0].bytes, kPiece);
  EXPECT_TRUE(one.write(Duration{1}).empty());
  EXPECT_NE(one.link.held_until(), Duration::max());
  one.link.broke();
  EXPECT_EQ(one.link.held_until(), Duration::max());
  one.link.opened();
  one.write();
  ASSERT_TRUE(one.grant(1, 1, large.size(), kPiece).ok());
  EXPECT_TRUE(one.write(Duration{2}).empty()) << "the rate is the peer's, not the connection's";
  EXPECT_EQ(one.write(one.link.held_until())[0].bytes, kPiece);
}

// The loop goes on by itself when a piece may leave, and a rate that changes counts.
TEST(TcpPace, TheLoopKeepsToIt) {
  SimulatedNetwork network(5, {});
  const auto pace = std::make_shared<SendPace>();
  TcpSettings settings;
  settings.pace = pace;
  SimulatedWire left(network, {"tale", "secret", kWireVersion, {0}, 0}, settings, 1);
  SimulatedWire right(network, {"tale", "secret", kWireVersion, {1}, 0}, {}, 2);
  left.connect(right, Ticket{1});
  const std::vector<std::byte> large(6 * kPiece, std::byte{7});
  const auto pass = [&](uint64_t name) {
    std::vector<std::byte> got(large.size());
    left.mailbox.reports.clear();
    right.engine->recv({0}, {0, 0, name}, got, {}, Ticket{name});
    left.engine->send({1}, {0, 0, name}, large, {}, Ticket{name});
    const Duration begun = network.now(), limit = begun + std::chrono::seconds(100);
    while (right.mailbox.reports.empty() && network.now() < limit) {
      turn_all(network, {&left, &right}, limit);
    }
    EXPECT_EQ(right.mailbox.reports.size(), 1u);
    right.mailbox.reports.clear();
    EXPECT_TRUE(same(got, large));
    return to_milliseconds(network.now() - begun);
  };
  EXPECT_LT(pass(10), 1000) << "no rate";
  pace->set({1}, Purpose::Step, 1e6);
  // 5 pauses between 6 pieces of 262 ms each, and what is caught up.
  EXPECT_NEAR(pass(11), 5 * 262.144, 10);
  pace->set({1}, Purpose::Step, 4e6);
  pass(12);
  EXPECT_NEAR(pass(13), 6 * 262.144 / 4, 70) << "as the piece before it asks";
}

// A large message goes on where it broke, also when that is in the middle of a piece.
TEST(TcpLink, AMessageGoesOnWhereItBroke) {
  OneLink one;
  std::vector<std::byte> large(2 * kPiece);
  one.send(1, large);
  ASSERT_TRUE(one.grant(1, 1, large.size()).ok());
  one.write();
  one.write();
  one.link.opened();
  EXPECT_EQ(one.write()[0].frame.kind, FrameKind::AllGranted) << "it waits to be granted again";
  ASSERT_TRUE(one.grant(1, 1, large.size(), kPiece + 17).ok());
  const auto written = one.write();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].frame.kind, FrameKind::Start);
  EXPECT_EQ(written[0].bytes, kPiece - 17);
  EXPECT_TRUE(one.mailbox.reports.empty());
  ASSERT_TRUE(one.say({FrameKind::Got, 1}).ok());
  ASSERT_EQ(one.mailbox.reports.size(), 1u);
  EXPECT_TRUE(one.mailbox.reports[0].status.ok());
}

// The acknowledgement of a small message waits for another frame, that of a large one does not.
TEST(TcpLink, AcknowledgementsRideOnOtherFrames) {
  OneLink one;
  std::vector<std::byte> small(8), large(kSmall + 1);
  one.link.recv({0, 0, 1}, small, {}, Ticket{1});
  one.link.recv({0, 0, 2}, large, {}, Ticket{2});
  one.write();
  ASSERT_TRUE(one.say({FrameKind::Start, 8, 1}, 8).ok());
  EXPECT_TRUE(one.write().empty());
  one.link.recv({0, 0, 3}, small, {}, Ticket{3});
  const auto written = one.write();
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0].frame.kind, FrameKind::Got);
  EXPECT_EQ(written[0].frame.count, 1u);
  ASSERT_TRUE(one.say({FrameKind::Start, kSmall + 1, 2}, kSmall + 1).ok());
  EXPECT_EQ(one.write()[0].frame.kind, FrameKind::Got);
}

TEST(TcpLink, AMismatchSurvivesABreak) {
  OneLink one;
  std::vector<std::byte> bytes(100);
  one.send(1, bytes);
  ASSERT_TRUE(one.grant(1, 1, 99).ok());
  ASSERT_EQ(one.mailbox.reports.size(), 1u);
  EXPECT_FALSE(one.mailbox.reports[0].status.ok());
  one.write();
  one.link.opened();
  one.write();
  ASSERT_TRUE(one.grant(1, 1, 99).ok());
  const auto written = one.write();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].frame.kind, FrameKind::Mismatch);
  EXPECT_EQ(written[0].frame.size, 100u);
}

// Each of these ends with a sentence, and no byte is written to a buffer that did not wait for it.
TEST(TcpLink, APeerThatBreaksTheRulesIsToldWhich) {
  struct Case {
    std::vector<Frame> frames;
    std::string words;
  };
  const Frame granted{FrameKind::Grant, 0, 5, 0, 10, {0, 0, 4}, {}};
  const Case cases[] = {
      {{{FrameKind::Start, 9, 1}},
       "it sent 9 bytes of a message (epoch 0 step 0 name 1) that lacks 8"},
      {{{FrameKind::Start, 0, 1}}, "it sent 0 bytes of a message"},
      {{{FrameKind::Start, 8, 2}}, "it sent a message that nobody waits for"},
      {{{FrameKind::Piece, 8, 1}}, "it sent a piece of a message that has not begun"},
      {{{FrameKind::Got, 1}}, "it acknowledged 1 messages of 0"},
      {{{FrameKind::Got, 0}}, "it acknowledged 0 messages of 0"},
      {{{FrameKind::Mismatch, 0, 7, 0, 5}}, "it told the size of a message that nobody waits for"},
      {{granted, granted}, "it granted receive 5 after 5"},
      {{granted, {FrameKind::Grant, 0, 6, 0, 10, {0, 0, 4}, {}}}, "it posted two receives under"},
      {{{FrameKind::Grant, 0, 5, 3, 10, {0, 0, 4}, {}}}, "it asks for the rest of a message"},
      {{{static_cast<FrameKind>(9), 0}}, "it sent a header that no frame has"},
      {{granted,
        {FrameKind::Grant, 0, 6, 0, 1, {0, 0, 6}, {}},
        {FrameKind::Grant, 0, 7, 0, 1, {0, 0, 7}, {}}},
       "it has posted more than 2 messages that worker 0 has not sent"}};
  for (const Case& each : cases) {
    OneLink one({false, 2});
    std::vector<std::byte> memory(24);
    one.link.recv({0, 0, 1}, std::span(memory).subspan(8, 8), {}, Ticket{1});
    one.write();
    Status status = ok();
    for (const Frame& frame : each.frames) {
      ASSERT_TRUE(status.ok()) << status.error().message;
      status = one.say(frame, frame.kind == FrameKind::Start ? frame.count : 0);
    }
    ASSERT_FALSE(status.ok()) << each.words;
    EXPECT_EQ(status.error().message.find(each.words), 0u) << status.error().message;
    EXPECT_EQ(memory, std::vector<std::byte>(24));
    one.link.fail(invalid("over"));
    EXPECT_EQ(one.mailbox.reports.size(), 1u);
  }
}

}  // namespace
}  // namespace tenuto::tcp
