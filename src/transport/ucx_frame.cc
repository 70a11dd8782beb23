#include "transport/ucx_frame.h"

#include <cstring>
#include <type_traits>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr uint32_t kFirstWord = 0x74656e75;

class Writer {
 public:
  template <class Number>
  void number(Number value) {
    static_assert(std::is_trivially_copyable_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(const std::string& value) {
    const size_t length = std::min(value.size(), kFrameText);
    number(static_cast<uint16_t>(length));
    bytes_.append(value, 0, length);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class Number>
  Number number() {
    Number value{};
    if (rest_.size() < sizeof(value)) {
      good_ = false;
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_ = rest_.subspan(sizeof(value));
    return value;
  }
  // A string as it was sent. Use printable() on one that may end in a log or on a terminal.
  std::string text() {
    const size_t length = number<uint16_t>();
    if (!good_ || length > kFrameText || rest_.size() < length) {
      good_ = false;
      return {};
    }
    std::string value(reinterpret_cast<const char*>(rest_.data()), length);
    rest_ = rest_.subspan(length);
    return value;
  }
  bool whole() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool good_ = true;
};

std::string printable(std::string text) {
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  }
  return text;
}

void write_hello(Writer& writer, const Frame& frame) {
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

bool read_hello(Reader& reader, Frame& frame) {
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

void write_arrivals(Writer& writer, const std::vector<uint64_t>& arrived) {
  const size_t count = std::min(arrived.size(), kFrameArrivals);
  writer.number(static_cast<uint8_t>(count));
  for (size_t i = 0; i < count; ++i) writer.number(arrived[i]);
}

bool read_arrivals(Reader& reader, std::vector<uint64_t>& arrived) {
  const size_t count = reader.number<uint8_t>();
  if (count > kFrameArrivals) return false;
  for (size_t i = 0; i < count; ++i) arrived.push_back(reader.number<uint64_t>());
  return true;
}

}  // namespace

std::string encode(const Frame& frame) {
  Writer writer;
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
  Reader reader(bytes);
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
