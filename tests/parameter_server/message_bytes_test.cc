// Messages of server shards as bytes: random ones of every kind, and bytes that are none.
#include "parameter_server/message_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "counted_memory.h"
#include "random_messages.h"

namespace tenuto::servers {
namespace {

using Head = std::vector<std::byte>;

Message must_decode(const Head& head, const std::vector<Payload>& payloads) {
  auto message = decode(head, payloads);
  EXPECT_TRUE(message.ok()) << (message.ok() ? "" : message.error().message);
  return message.ok() ? std::move(message).value() : Message{};
}

// Both functions refuse the bytes, and say so in a sentence that has this part.
void expect_refused(const Head& head, const std::string& part = "expected") {
  const auto sizes = payload_sizes(head);
  const auto message = decode(head, {});
  ASSERT_FALSE(sizes.ok());
  ASSERT_FALSE(message.ok());
  for (const Error& error : {sizes.error(), message.error()}) {
    EXPECT_EQ(error.code, Code::Corrupt);
    EXPECT_EQ(error.reach, Reach::Worker);
    EXPECT_EQ(error.message.find("a message of server shards is damaged: "), 0u);
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }
}

// Payloads of these sizes, unless they are too large for a test.
std::optional<std::vector<Payload>> payloads_of(const std::vector<int64_t>& sizes) {
  std::vector<Payload> payloads;
  for (const int64_t size : sizes) {
    if (size > 1000) return {};
    payloads.push_back(std::make_shared<const Head>(static_cast<size_t>(size)));
  }
  return payloads;
}

// Reads bytes that may be anything. What is taken for a message has these bytes and no others.
bool is_message(const Head& head) {
  // An item has at most six times the bytes in memory that it has in a head, and growing lists are
  // copied. The rest is for sentences.
  const size_t most = 16 * head.size() + 4096;
  const size_t before = memory_taken();
  const auto sizes = payload_sizes(head);
  EXPECT_LE(memory_taken() - before, most);
  if (!sizes.ok()) {
    expect_refused(head);
    return false;
  }
  const auto payloads = payloads_of(sizes.value());
  if (!payloads) return true;
  const size_t again = memory_taken();
  const Message message = must_decode(head, *payloads);
  EXPECT_LE(memory_taken() - again, most);
  const EncodedMessage encoded = encode(message);
  EXPECT_EQ(encoded.head, head);
  EXPECT_EQ(encoded.payloads, *payloads) << "the payloads are not copied";
  return true;
}

TEST(MessageBytes, MessagesOfEveryKindComeBack) {
  Random random(1);
  for (size_t kind = 0; kind < kMessageKinds; ++kind) {
    for (int i = 0; i < 100; ++i) {
      SCOPED_TRACE(cat("kind ", kind, ", message ", i));
      const Message message = random_message(random, kind);
      const EncodedMessage encoded = encode(message);
      const auto sizes = payload_sizes(encoded.head);
      ASSERT_TRUE(sizes.ok()) << sizes.error().message;
      std::vector<int64_t> expected;
      for (const Payload& payload : encoded.payloads) expected.push_back(size_of(payload).count);
      EXPECT_EQ(sizes.value(), expected);
      EXPECT_EQ(std::accumulate(expected.begin(), expected.end(), int64_t{0}),
                payload_of(message).count);
      const Message back = must_decode(encoded.head, encoded.payloads);
      EXPECT_TRUE(are_same(back, message));
      EXPECT_EQ(encode(back).head, encoded.head);
    }
  }
}

TEST(MessageBytes, EveryCutAndEveryByteMoreIsRefused) {
  Random random(2);
  for (size_t kind = 0; kind < kMessageKinds; ++kind) {
    SCOPED_TRACE(cat("kind ", kind));
    const Head whole = encode(random_message(random, kind)).head;
    for (size_t size = 0; size < whole.size(); ++size) {
      expect_refused({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
    }
    Head longer = whole;
    longer.push_back({});
    expect_refused(longer, "expected the end at byte");
    if (HasFailure()) return;
  }
}

TEST(MessageBytes, AChangedByteIsRefusedOrMakesAnotherMessage) {
  Random random(3);
  int64_t accepted = 0, refused = 0;
  for (size_t kind = 0; kind < kMessageKinds; ++kind) {
    SCOPED_TRACE(cat("kind ", kind));
    Head head = encode(random_message(random, kind)).head;
    ASSERT_TRUE(is_message(head));
    for (std::byte& byte : head) {
      const std::byte before = byte;
      const auto flipped = static_cast<std::byte>(1 << random.below(8));
      for (const std::byte after : {std::byte{0}, std::byte{0xff}, before ^ flipped}) {
        byte = after;
        ++(is_message(head) ? accepted : refused);
      }
      byte = before;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 100);
}

// Wherever a count stands, it may claim the most that there is.
TEST(MessageBytes, ACountCannotAskForMemory) {
  Random random(4);
  for (size_t kind = 0; kind < kMessageKinds; ++kind) {
    SCOPED_TRACE(cat("kind ", kind));
    const Head whole = encode(random_message(random, kind)).head;
    ASSERT_TRUE(is_message(whole));
    for (size_t at = 0; at + 4 <= whole.size(); ++at) {
      Head head = whole;
      std::fill_n(head.begin() + static_cast<ptrdiff_t>(at), 4, std::byte{0xff});
      is_message(head);
    }
    if (HasFailure()) return;
  }
}

TEST(MessageBytes, RefusalsSayWhatWasExpected) {
  Head head = encode({{}, Assign{}}).head;
  head[24] = std::byte{kMessageKinds};
  expect_refused(head,
                 "expected a kind of message from 0 to 12 at byte 24 of 31, found 13: start "
                 "all processes from the same build");
  head = encode({{}, Assign{}}).head;
  head[25] = std::byte{2};
  expect_refused(head, "expected 0 or 1 at byte 25 of 31, found 2");
  head = encode({{}, Assign{}}).head;
  head[26] = std::byte{1};
  expect_refused(head, "expected at most 0 items at byte 26 of 31, found 1");
  head.resize(28);
  expect_refused(head, "expected 4 bytes at byte 26 of 28, found 2");
  head = encode({{}, Record{}}).head;
  head[33] = std::byte{8};
  expect_refused(head, "expected a sync mode from 0 to 7 at byte 33 of 171, found 8");
  head = encode({{}, Parameters{}}).head;
  head[32] = std::byte{0xff};
  expect_refused(head, "expected the size of a payload at byte 25 of 33, found -");
}

TEST(MessageBytes, PayloadsOfOtherSizesAreRefused) {
  Random random(5);
  const Payload state = random_payload(random, 16), old = random_payload(random, 8);
  const EncodedMessage encoded = encode({{}, Fill{state, {{{1}, old}}, {}}});
  EXPECT_EQ(encoded.payloads, (std::vector<Payload>{state, old}));
  for (const std::vector<Payload>& payloads :
       {std::vector<Payload>{}, {state}, {old, state}, {state, old, old}, {state, nullptr}}) {
    const auto message = decode(encoded.head, payloads);
    ASSERT_FALSE(message.ok());
    EXPECT_EQ(message.error().code, Code::Corrupt);
    EXPECT_EQ(message.error().reach, Reach::Worker);
    EXPECT_NE(message.error().message.find("expected 2 payloads"), std::string::npos)
        << message.error().message;
  }
}

TEST(MessageBytes, AMissingPayloadBecomesOneWithoutBytes) {
  const EncodedMessage encoded = encode({{}, Gradient{7, nullptr}});
  ASSERT_EQ(encoded.payloads.size(), 1u);
  ASSERT_NE(encoded.payloads[0], nullptr);
  EXPECT_TRUE(encoded.payloads[0]->empty());
  const Message back = must_decode(encoded.head, encoded.payloads);
  EXPECT_EQ(std::get<Gradient>(back.body).payload, encoded.payloads[0]);
}

TEST(MessageBytes, HeadsHaveALimit) {
  for (int64_t size = kLargestHead - 3; size <= kLargestHead + 1; ++size) {
    const EncodedMessage encoded = encode(message_with_head(size));
    ASSERT_EQ(std::ssize(encoded.head), size);
    if (size <= kLargestHead) {
      EXPECT_EQ(encode(must_decode(encoded.head, {})).head, encoded.head);
    } else {
      expect_refused(encoded.head, "expected at most 1048576 bytes, found 1048577");
    }
  }
}

// As the comment on kLargestHead promises; with micro-batches of four streams in each work.
TEST(MessageBytes, TheRecordOfALargeRunFits) {
  const std::vector<std::pair<size_t, int32_t>> cases = {{2000, 1}, {1900, 4}};
  for (const auto& [replicas, local_steps] : cases) {
    Work work;
    work.local_steps = local_steps;
    work.micros.resize(4);
    Record record;
    record.streams.resize(replicas);
    record.open.resize(replicas, {work, true, true});
    record.updates.resize(2);
    for (DecidedUpdate& decided : record.updates) {
      decided.update.members.resize(replicas);
      decided.update.parents.resize(replicas);
      decided.works.resize(replicas, work);
    }
    EXPECT_LE(std::ssize(encode({{}, record}).head), kLargestHead) << local_steps;
  }
}

}  // namespace
}  // namespace tenuto::servers
