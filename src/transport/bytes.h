// Numbers and texts as bytes, for the control messages of all wires. Numbers are in the machine's
// byte order; the first word of a hello reveals a machine of the other order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tenuto {

// The longest string in a control message, in bytes.
inline constexpr size_t kFrameText = 1024;

// Puts numbers and texts one behind the other.
class ByteWriter {
 public:
  // Appends the bytes of a number.
  template <class Number>
  void number(Number value) {
    static_assert(std::is_trivially_copyable_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  // Appends the length of a text and the text, of which at most kFrameText bytes.
  void text(const std::string& value) {
    const size_t length = std::min(value.size(), kFrameText);
    number(static_cast<uint16_t>(length));
    bytes_.append(value, 0, length);
  }
  // What was written.
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a ByteWriter has written, from bytes that may be anything.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  // The next number; 0 when the bytes end before.
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
  // How many bytes have not been read.
  size_t left() const { return rest_.size(); }
  // Whether everything was there, and nothing is left.
  bool whole() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool good_ = true;
};

// The text with a question mark in place of each control character.
inline std::string printable(std::string text) {
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  }
  return text;
}

}  // namespace tenuto
