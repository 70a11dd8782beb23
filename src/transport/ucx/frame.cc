#include "transport/ucx/frame.h"

#include "base/text.h"
#include "transport/bytes.h"

namespace tenuto {

namespace {

constexpr uint32_t kFirstWord = 0x74656e75;

void write_hello(ByteWriter& writer, const Frame& frame) {
  writer.number(kFirstWord);
  writer.number(frame.own_channel);
  writer.number(frame.hello.version);
  writer.number(frame.hello.self.value);
  writer.number(frame.expected.value);
  writer.number(frame.hello.epoch);
  writer.text(frame.hello.job);
  writer.text(frame.hello.token);
  writer.number(frame.instance);
  writer.number(frame.resumes);
  writer.text(frame.address);
}

bool read_hello(ByteReader& reader, Frame& frame) {
  if (reader.number<uint32_t>() != kFirstWord) return false;
  frame.own_channel = reader.number<uint64_t>();
  frame.hello.version = reader.number<int32_t>();
  frame.hello.self.value = reader.number<int32_t>();
  frame.expected.value = reader.number<int32_t>();
  frame.hello.epoch = reader.number<int64_t>();
  frame.hello.job = printable(reader.text());
  frame.hello.token = reader.text();
  frame.instance = reader.number<uint64_t>();
  frame.resumes = reader.number<uint64_t>();
  frame.address = printable(reader.text());
  return frame.hello.self.value >= 0;
}

void write_arrivals(ByteWriter& writer, const std::vector<uint64_t>& arrived) {
  const size_t count = std::min(arrived.size(), kFrameArrivals);
  writer.number(static_cast<uint8_t>(count));
  for (size_t i = 0; i < count; ++i) writer.number(arrived[i]);
}

bool read_arrivals(ByteReader& reader, std::vector<uint64_t>& arrived) {
  const size_t count = reader.number<uint8_t>();
  if (count > kFrameArrivals) return false;
  for (size_t i = 0; i < count; ++i) arrived.push_back(reader.number<uint64_t>());
  return true;
}

}  // namespace

std::string encode(const Frame& frame) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(frame.kind));
  writer.number(frame.channel);
  switch (frame.kind) {
    case FrameKind::Hello:
    case FrameKind::Welcome:
    case FrameKind::Drop:
      write_hello(writer, frame);
      break;
    case FrameKind::Refuse:
      writer.text(frame.text);
      break;
    case FrameKind::Grant:
      writer.number(frame.grant);
      writer.number(frame.size);
      writer.number(frame.tag.epoch);
      writer.number(frame.tag.step);
      writer.number(frame.tag.name);
      write_arrivals(writer, frame.arrived);
      break;
    case FrameKind::Mismatch:
      writer.number(frame.grant);
      writer.number(frame.size);
      break;
    case FrameKind::Got:
      write_arrivals(writer, frame.arrived);
      break;
    case FrameKind::Bye:
    case FrameKind::AllGranted:
    case FrameKind::Ask:
    case FrameKind::Here:
      break;
  }
  return writer.take();
}

Result<Frame> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Frame frame;
  const auto kind = reader.number<uint8_t>();
  frame.kind = static_cast<FrameKind>(kind);
  frame.channel = reader.number<uint64_t>();
  bool good = true;
  switch (frame.kind) {
    case FrameKind::Hello:
    case FrameKind::Welcome:
    case FrameKind::Drop:
      good = read_hello(reader, frame);
      break;
    case FrameKind::Refuse:
      frame.text = printable(reader.text());
      break;
    case FrameKind::Grant:
      frame.grant = reader.number<uint64_t>();
      frame.size = reader.number<uint64_t>();
      frame.tag.epoch = reader.number<int64_t>();
      frame.tag.step = reader.number<int64_t>();
      frame.tag.name = reader.number<uint64_t>();
      good = read_arrivals(reader, frame.arrived);
      break;
    case FrameKind::Mismatch:
      frame.grant = reader.number<uint64_t>();
      frame.size = reader.number<uint64_t>();
      break;
    case FrameKind::Got:
      good = read_arrivals(reader, frame.arrived);
      break;
    case FrameKind::Bye:
    case FrameKind::AllGranted:
    case FrameKind::Ask:
    case FrameKind::Here:
      break;
    default:
      good = false;
  }
  if (!good || !reader.whole()) {
    return Error{Code::Corrupt, Reach::Link,
                 cat("a control message of ", bytes.size(), " bytes and kind ", +kind,
                     " is not a whole frame of wire version ", kWireVersion)};
  }
  return frame;
}

}  // namespace tenuto
