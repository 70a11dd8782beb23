// What two UCX wires say to each other beside the bytes: one frame per active message, fields in
// the byte order of the machine (the first word of a hello tells a machine of the other order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "transport/transport.h"

namespace tenuto {

// Strings in frames are at most so long.
inline constexpr size_t kFrameText = 1024;

// Hello, Welcome, Refuse: the hand-shake. Grant, Mismatch: a receive is posted; its message has
// another size. Got: a message that asked for it has arrived. Bye: nothing more comes from me.
enum class FrameKind : uint8_t { Hello = 1, Welcome, Refuse, Grant, Mismatch, Got, Bye };

// One control message. `channel` names the link at its receiver (0 in a Hello: not known yet).
struct Frame {
  FrameKind kind = FrameKind::Bye;
  uint64_t channel = 0;
  uint64_t own_channel = 0;  // Hello, Welcome: how the sender names this link
  Hello hello;               // Hello, Welcome
  WorkerId expected;         // Hello: whom the sender means to reach
  std::string text;          // Refuse: the sentence
  uint64_t grant = 0;        // Grant, Mismatch, Got
  uint64_t size = 0;         // Grant: of the posted buffer; Mismatch: of the message
  Tag tag;                   // Grant
};

// The header of a data message.
struct DataHeader {
  uint64_t channel = 0, grant = 0;
  int64_t sent = 0, arrival = 0;
  uint64_t acknowledge = 0;  // 1 = answer with Got
};

// Frame to bytes and back. Errors: Corrupt/Link for anything but a whole frame.
std::string encode(const Frame& frame);
// The frame in `bytes`.
Result<Frame> decode(std::span<const std::byte> bytes);

}  // namespace tenuto
