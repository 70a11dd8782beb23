// The head of a message of server shards, as it comes from another process: what is taken for one
// is written with the same bytes, and has payloads of the sizes that it says. The same bytes are
// read as what a run's host and its processes tell each other.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "parameter_server/message_bytes.h"
#include "target.h"

using namespace tenuto;
using namespace tenuto::servers;

namespace {

constexpr int64_t kMostPayload = 1 << 16;  // of one that the target makes

// What is read is written with the same bytes.
template <class Value>
void expect_same_bytes(std::span<const std::byte> bytes, const Result<Value>& read,
                       std::vector<std::byte> (*write)(const Value&)) {
  if (!read.ok()) return expect_sentence(read.error(), "a message of server shards is damaged: ");
  const std::vector<std::byte> again = write(read.value());
  CHECK(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()),
        "a command or report is written otherwise than it was read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto head = std::as_bytes(std::span(data, size));
  expect_same_bytes(head, decode_command(head), encode_command);
  expect_same_bytes(head, decode_report(head), encode_report);
  const auto sizes = payload_sizes(head);
  if (!sizes.ok()) {
    expect_sentence(sizes.error(), "a message of server shards is damaged: ");
    CHECK(!decode(head, {}).ok(), "the bytes have no payloads, and are a message");
    return 0;
  }
  std::vector<Payload> payloads;
  for (const int64_t each : sizes.value()) {
    if (each > kMostPayload) return 0;
    payloads.push_back(std::make_shared<const std::vector<std::byte>>(static_cast<size_t>(each)));
  }
  const Result<Message> message = decode(head, payloads);
  CHECK(message.ok(), "the payloads have other sizes: " + message.error().message);
  const EncodedMessage again = encode(message.value());
  CHECK(std::equal(head.begin(), head.end(), again.head.begin(), again.head.end()),
        "the message is written otherwise than it was read");
  CHECK(again.payloads == payloads, "the message has other payloads");
  payloads.push_back(std::make_shared<const std::vector<std::byte>>());
  CHECK(!decode(head, std::move(payloads)).ok(), "a payload too many is not noticed");
  return 0;
}
