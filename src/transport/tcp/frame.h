// What two ends of a TCP wire say to each other once each knows who the other is: a stream of
// frames, each a header of a size that follows from its kind, some with bytes of a message behind
// it. Fields are in the machine's byte order, as in the greeting (greeting.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "transport/transport.h"

namespace tenuto::tcp {

// Grant: a receive is posted, and `from` of its `size` bytes have come over earlier connections.
// Start: a message begins, or goes on behind those bytes; `count` bytes of it follow.
// Piece: the next `count` bytes of a message that has begun on this connection.
// Mismatch: in place of a Start: the message has `size` bytes, not those of the grant.
// Got: the next `count` messages, in the order in which their last bytes were sent over this
// connection, have arrived.
// AllGranted: on a new connection, all receives that were posted before have been granted again.
// Bye: the sender of this frame has sent all that it had, and sends nothing more.
enum class FrameKind : uint8_t { Grant = 1, Start, Piece, Mismatch, Got, AllGranted, Bye };

// One frame, without the bytes of the message.
struct Frame {
  FrameKind kind = FrameKind::Bye;
  uint32_t count = 0;  // Start, Piece: bytes that follow; Got: messages
  uint64_t grant = 0;  // Grant, Start, Piece, Mismatch: number of the receive
  uint64_t from = 0;   // Grant
  uint64_t size = 0;   // Grant, Mismatch
  Tag tag;             // Grant
  Stamp stamp;         // Start
};

// The first bytes of every header, which tell its size.
inline constexpr size_t kFrameHead = 8;
// The size of the longest header.
inline constexpr size_t kLongestFrame = 56;

// The size of the header that begins with these kFrameHead bytes; 0 when no frame begins so.
size_t frame_size(std::span<const std::byte> head);

// Writes the header of `frame` to the beginning of `bytes`, which has at least kLongestFrame bytes.
// Returns its size.
size_t encode(const Frame& frame, std::span<std::byte> bytes);

// The frame whose header is `bytes`. Errors: Corrupt/Link for anything but one whole header.
Result<Frame> decode(std::span<const std::byte> bytes);

}  // namespace tenuto::tcp
