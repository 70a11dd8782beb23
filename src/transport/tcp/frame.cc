#include "transport/tcp/frame.h"

#include <cstring>

#include "base/text.h"
#include "transport/bytes.h"

namespace tenuto::tcp {

namespace {

// Bytes behind the head, by kind.
size_t rest_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::Grant:
      return 48;
    case FrameKind::Start:
      return 32;
    case FrameKind::Piece:
      return 8;
    case FrameKind::Mismatch:
      return 16;
    default:
      return 0;
  }
}

// Puts numbers into a header, one behind the other.
class Pen {
 public:
  explicit Pen(std::span<std::byte> bytes) : bytes_(bytes) {}
  template <class Number>
  void number(Number value) {
    std::memcpy(bytes_.data() + size_, &value, sizeof(value));
    size_ += sizeof(value);
  }
  size_t size() const { return size_; }

 private:
  std::span<std::byte> bytes_;
  size_t size_ = 0;
};

}  // namespace

size_t frame_size(std::span<const std::byte> head) {
  const auto kind = static_cast<uint8_t>(head[0]);
  const bool known = kind >= static_cast<uint8_t>(FrameKind::Grant) &&
                     kind <= static_cast<uint8_t>(FrameKind::Bye);
  for (size_t i = 1; i < 4; ++i) {
    if (head[i] != std::byte{0}) return 0;
  }
  return known ? kFrameHead + rest_of(static_cast<FrameKind>(kind)) : 0;
}

size_t encode(const Frame& frame, std::span<std::byte> bytes) {
  CHECK(bytes.size() >= kLongestFrame, "a frame is written where it may not fit");
  Pen pen(bytes);
  pen.number(static_cast<uint32_t>(frame.kind));
  pen.number(frame.count);
  if (rest_of(frame.kind) > 0) pen.number(frame.grant);
  switch (frame.kind) {
    case FrameKind::Grant:
      pen.number(frame.from);
      pen.number(frame.size);
      pen.number(frame.tag.epoch);
      pen.number(frame.tag.step);
      pen.number(frame.tag.name);
      break;
    case FrameKind::Start:
      pen.number(int64_t{frame.stamp.sent.count()});
      pen.number(int64_t{frame.stamp.arrival.count()});
      pen.number(frame.stamp.tally);
      break;
    case FrameKind::Mismatch:
      pen.number(frame.size);
      break;
    default:
      break;
  }
  return pen.size();
}

Result<Frame> decode(std::span<const std::byte> bytes) {
  const size_t size = bytes.size() < kFrameHead ? 0 : frame_size(bytes);
  if (size == 0 || size != bytes.size()) {
    return Error{
        Code::Corrupt, Reach::Link,
        cat("it sent ", bytes.size(), " bytes that are no header of wire version ", kWireVersion)};
  }
  ByteReader reader(bytes);
  Frame frame;
  frame.kind = static_cast<FrameKind>(reader.number<uint32_t>());
  frame.count = reader.number<uint32_t>();
  if (rest_of(frame.kind) > 0) frame.grant = reader.number<uint64_t>();
  switch (frame.kind) {
    case FrameKind::Grant:
      frame.from = reader.number<uint64_t>();
      frame.size = reader.number<uint64_t>();
      frame.tag.epoch = reader.number<int64_t>();
      frame.tag.step = reader.number<int64_t>();
      frame.tag.name = reader.number<uint64_t>();
      break;
    case FrameKind::Start:
      frame.stamp.sent = Duration(reader.number<int64_t>());
      frame.stamp.arrival = Duration(reader.number<int64_t>());
      frame.stamp.tally = reader.number<uint64_t>();
      break;
    case FrameKind::Mismatch:
      frame.size = reader.number<uint64_t>();
      break;
    default:
      break;
  }
  return frame;
}

}  // namespace tenuto::tcp
