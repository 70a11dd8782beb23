// What the UCX wire sends beside the messages themselves, and its choice of protocol by the rate of
// a link.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "transport/ucx/frame.h"
#include "transport/ucx/link_rate.h"

namespace tenuto {
namespace {

TEST(UcxFrame, EveryKindReadsBackAndEveryPrefixIsRefused) {
  for (int kind = 1; kind <= int(FrameKind::Drop); ++kind) {
    Frame frame;
    frame.kind = FrameKind(kind);
    frame.channel = 7;
    frame.own_channel = 8;
    frame.hello = {"job", "token", 3, WorkerId{4}, 5};
    frame.expected = WorkerId{6};
    frame.text = "no";
    frame.grant = 9;
    frame.size = 10;
    frame.tag = {1, 2, 3};
    frame.instance = 11;
    frame.resumes = 12;
    frame.address = "here:13";
    frame.arrived = {14, 15};
    const std::string bytes = encode(frame);
    const auto span = std::as_bytes(std::span(bytes.data(), bytes.size()));
    const auto back = decode(span);
    ASSERT_TRUE(back.ok()) << kind;
    EXPECT_EQ(encode(back.value()), bytes);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(span.first(length)).ok()) << kind << " cut at " << length;
    }
  }
}

// A longer text is cut, and further arrivals are left for the next frame. A frame with more of
// either is refused.
TEST(UcxFrame, TextsAndArrivalsHaveLimits) {
  Frame refusal{.kind = FrameKind::Refuse};
  for (const size_t length : {kFrameText - 1, kFrameText, kFrameText + 1, 10 * kFrameText}) {
    refusal.text = std::string(length, 'x');
    const std::string bytes = encode(refusal);
    const auto back = decode(std::as_bytes(std::span(bytes.data(), bytes.size())));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value().text.size(), std::min(length, kFrameText));
  }
  Frame got{.kind = FrameKind::Got};
  for (const size_t count : {kFrameArrivals - 1, kFrameArrivals, kFrameArrivals + 1}) {
    got.arrived.assign(count, 7);
    const std::string bytes = encode(got);
    const auto back = decode(std::as_bytes(std::span(bytes.data(), bytes.size())));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value().arrived.size(), std::min(count, kFrameArrivals));
  }
  refusal.text = std::string(kFrameText, 'x');
  std::string longer = encode(refusal) + "x";
  longer[longer.size() - kFrameText - 3] += 1;  // the low byte of the length
  EXPECT_FALSE(decode(std::as_bytes(std::span(longer.data(), longer.size()))).ok());
  got.arrived.assign(kFrameArrivals, 7);
  std::string more = encode(got);
  const size_t count_at = more.size() - 8 * kFrameArrivals - 1;
  EXPECT_EQ(static_cast<size_t>(more[count_at]), kFrameArrivals);
  more[count_at] += 1;
  more += std::string(8, '\0');
  EXPECT_FALSE(decode(std::as_bytes(std::span(more.data(), more.size()))).ok());
}

TEST(UcxFrame, RandomBytesNeverCrash) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(random.below(120));
    for (auto& each : bytes) each = std::byte(random.next());
    if (!bytes.empty()) bytes[0] = std::byte(random.below(11));
    const auto frame = decode(bytes);
    if (frame.ok()) {
      EXPECT_EQ(encode(frame.value()).size(), bytes.size());
    }
  }
}

TEST(LinkRate, LargeMessagesOnFastLinksAlone) {
  using std::chrono::milliseconds;
  LinkRate rate;
  EXPECT_FALSE(rate.rendezvous({16 << 20})) << "nothing is known yet";
  EXPECT_FALSE(rate.wants_probe({1000}, Duration(0)));
  ASSERT_TRUE(rate.wants_probe({1000000}, Duration(0)));
  rate.start({1000000}, {3000000}, Duration(0));
  EXPECT_FALSE(rate.wants_probe({1000000}, Duration(0))) << "one at a time";
  rate.finish(milliseconds(4));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(), 1e9);
  EXPECT_TRUE(rate.rendezvous({1 << 20}));
  EXPECT_FALSE(rate.rendezvous({512 << 10})) << "it goes in one piece";
  Duration now = milliseconds(4);
  for (int i = 0; i < 8; ++i) {  // the link slows to 25 MB/s and is noticed
    now += milliseconds(20);
    ASSERT_TRUE(rate.wants_probe({1000000}, now));
    rate.start({1000000}, {0}, now);
    now += milliseconds(40);
    rate.finish(now);
  }
  EXPECT_FALSE(rate.rendezvous({16 << 20}));
}

}  // namespace
}  // namespace tenuto
