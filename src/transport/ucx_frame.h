// What two UCX wires say to each other beside the bytes: one frame per active message, fields in
// the byte order of the machine (the first word of a hello tells a machine of the other order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/transport.h"

namespace tenuto {

// Strings in frames are at most so long.
inline constexpr size_t kFrameText = 1024;

// At most so many arrivals are told in one frame.
inline constexpr size_t kFrameArrivals = 64;

// Hello, Welcome, Refuse: the hand-shake. Grant, Mismatch: a receive is posted; its message has
// another size. Got: messages have arrived. Bye: nothing more comes from me. Settled, on a mended
// connection: all that I still want has been granted again, the rest is here. Drop, in place of
// a Hello: the connection that it names is not wanted any more. Ask: a sign of life is wanted;
// Here: that sign.
enum class FrameKind : uint8_t {
  Hello = 1,
  Welcome,
  Refuse,
  Grant,
  Mismatch,
  Got,
  Bye,
  Settled,
  Drop,
  Ask,
  Here,
};

// One control message. `channel` names the link at its receiver (0 in a Hello: not known yet).
struct Frame {
  FrameKind kind = FrameKind::Bye;
  uint64_t channel = 0;
  uint64_t own_channel = 0;  // Hello, Welcome: how the sender names this link
  Hello hello;               // Hello, Welcome, Drop; so all that belongs to a hello
  uint64_t instance = 0;     // Hello, Welcome: of the sender, another for each wire
  uint64_t resumes = 0;      // Hello: instance of the peer whose connection broke; 0 = a first one
  std::string address;       // Hello: where the sender listens
  WorkerId expected;         // Hello: whom the sender means to reach
  std::string text;          // Refuse: the sentence
  uint64_t grant = 0;        // Grant, Mismatch: the receive, by the same number as long as it lasts
  uint64_t size = 0;         // Grant: of the posted buffer; Mismatch: of the message
  Tag tag;                   // Grant
  std::vector<uint64_t> arrived;  // Grant, Got: grants whose messages are there
};

// The header of a data message.
struct DataHeader {
  uint64_t channel = 0, grant = 0;
  int64_t sent = 0, arrival = 0;
  uint64_t acknowledge = 0;  // 1 = say Got at once; 0 = with the next frame that goes
  uint64_t tally = 0;        // Stamp
};

// What the sender said of the message.
inline Stamp stamp_of(const DataHeader& header) {
  return {Duration(header.sent), Duration(header.arrival), header.tally};
}

// Frame to bytes and back. Errors: Corrupt/Link for anything but a whole frame.
std::string encode(const Frame& frame);
// The frame in `bytes`.
Result<Frame> decode(std::span<const std::byte> bytes);

}  // namespace tenuto
