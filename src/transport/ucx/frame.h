// The control messages of two UCX wires and the headers of their data messages: one frame per
// active message, fields in the machine's byte order (the first word of a hello reveals a machine
// of the other order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/bytes.h"
#include "transport/transport.h"

namespace tenuto {

// The most arrivals that one frame reports.
inline constexpr size_t kFrameArrivals = 64;

// Hello, Welcome, Refuse: the hand-shake. Grant: a receive is posted. Mismatch: the message for a
// grant has another size. Got: messages have arrived. Bye: the sender sends nothing more.
// AllGranted, on a repaired connection: the sender of this frame has granted again all messages
// that it still waits for; all others have arrived. Drop, in place of a Hello: its sender has
// dropped the connection that it names. Ask: requests a sign of life. Here: answers an Ask.
enum class FrameKind : uint8_t {
  Hello = 1,
  Welcome,
  Refuse,
  Grant,
  Mismatch,
  Got,
  Bye,
  AllGranted,
  Drop,
  Ask,
  Here,
};

// One control message. `channel` names the link at its receiver (0 in a Hello: not known yet).
struct Frame {
  FrameKind kind = FrameKind::Bye;
  uint64_t channel = 0;
  uint64_t own_channel = 0;  // Hello, Welcome: how the sender names this link
  Hello hello;               // Hello, Welcome, Drop: a Drop has all fields of a Hello
  uint64_t instance = 0;     // Hello, Welcome: of the sender; each wire has another one
  uint64_t resumes = 0;      // Hello: receiver's instance, to repair a connection; 0 = a new one
  std::string address;       // Hello: where the sender listens
  WorkerId expected;         // Hello: whom the sender means to reach
  std::string text;          // Refuse: the sentence
  uint64_t grant = 0;        // Grant, Mismatch: number of the receive, the same while it lasts
  uint64_t size = 0;         // Grant: of the posted buffer; Mismatch: of the message
  Tag tag;                   // Grant
  std::vector<uint64_t> arrived;  // Grant, Got: grants whose messages have arrived
};

// The header of a data message.
struct DataHeader {
  uint64_t channel = 0, grant = 0;
  int64_t sent = 0, arrival = 0;
  uint64_t acknowledge = 0;  // 1 = send Got at once; 0 = acknowledge with a later frame
  uint64_t tally = 0;        // Stamp
};

// The message's stamp.
inline Stamp stamp_of(const DataHeader& header) {
  return {Duration(header.sent), Duration(header.arrival), header.tally};
}

// The bytes of a frame.
std::string encode(const Frame& frame);
// The frame in `bytes`. Errors: Corrupt/Link for anything but a whole frame.
Result<Frame> decode(std::span<const std::byte> bytes);

}  // namespace tenuto
