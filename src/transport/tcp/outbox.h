// What one connection writes next: headers, and spans of the memory in which messages lie, in the
// order of the stream.
//
// The order is fixed only for the little that is handed to the socket at a time. So what is added
// later and is more urgent overtakes all that has not been staged yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/tcp/frame.h"

namespace tenuto::tcp {

// The staged bytes of one connection. No socket, no clock, no lock.
class Outbox {
 public:
  // Whether nothing is staged.
  bool empty() const { return next_ == segments_.size(); }
  // Whether more may be staged before this is written.
  bool has_space() const { return bytes_ < kMostBytes && segments_.size() < kMostSegments; }
  // Stages a header. `message` is not 0 if it ends the message of that number.
  void stage(const Frame& frame, uint64_t message = 0);
  // Stages bytes of a message behind its header; they stay where they are until they are written.
  void stage(std::span<const std::byte> bytes, uint64_t message);
  // The bytes to be written next; valid until the next call of another function.
  std::span<const std::span<const std::byte>> gather();
  // The first `count` of these bytes have been written: calls `left` with the number of each
  // message whose last byte was among them.
  template <class Left>
  void written(size_t count, Left left) {
    while (next_ < segments_.size()) {
      Segment& segment = segments_[next_];
      if (count < segment.size) {
        skip(segment, count);
        return;
      }
      count -= segment.size;
      const uint64_t message = segment.message;
      if (++next_ == segments_.size()) clear();
      if (message != 0) left(message);
    }
  }
  // Forgets what is staged: the connection is gone.
  void clear();
  // Copies what is staged, so that the memory of the messages is not read any more.
  void own();

 private:
  static constexpr size_t kMostBytes = 256 << 10;
  static constexpr size_t kMostSegments = 64;

  struct Segment {
    const std::byte* data = nullptr;  // null: in heads_, at `at`
    size_t at = 0, size = 0;
    uint64_t message = 0;
  };
  static void skip(Segment& segment, size_t count);

  std::vector<Segment> segments_;
  std::vector<std::byte> heads_;
  std::vector<std::span<const std::byte>> gathered_;
  size_t next_ = 0, bytes_ = 0;
};

}  // namespace tenuto::tcp
