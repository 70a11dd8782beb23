// A process that speaks HTTP/2 by hand, without the job's token, and admits no byte of an answer.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "protocol/credentials.h"
#include "transport/address.h"

namespace tenuto {

// One connection. Its window is 0 for each call, so no message can be sent to it.
class Http2Stranger {
 public:
  explicit Http2Stranger(const std::string& address) : address_(address) {
    const auto to = resolve(address);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto* where = reinterpret_cast<const sockaddr*>(&to.value().storage);
    EXPECT_EQ(::connect(socket_, where, to.value().length), 0);
    const timeval limit{60, 0};  // has failed, even on a busy machine
    EXPECT_EQ(::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    const std::string no_window{"\0\4\0\0\0\0", 6};
    say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, no_window));
  }
  Http2Stranger(const Http2Stranger&) = delete;
  Http2Stranger& operator=(const Http2Stranger&) = delete;
  ~Http2Stranger() { ::close(socket_); }

  // Begins a call of the coordinator's service and leaves it open.
  void call(const std::string& method) {
    const std::string head = field(":method", "POST") + field(":scheme", "http") +
                             field(":path", "/tenuto.wire.Coordinator/" + method) +
                             field(":authority", address_) +
                             field("content-type", "application/grpc") + field("te", "trailers") +
                             field("tenuto-protocol", std::to_string(kProtocol));
    say(frame(kHeaders, kEndOfHeaders, next_call_, head));
    next_call_ += 2;
  }

  // Reads until `count` more calls have been ended by a status. Returns how many have been when the
  // connection ends or nothing comes any more.
  int ended(int count) {
    int found = 0;
    while (found < count) {
      const std::string head = read(9);
      if (head.size() < 9) break;
      const auto at = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(head[i])); };
      const std::string payload = read(at(0) << 16 | at(1) << 8 | at(2));
      const size_t kind = at(3), flags = at(4);
      if (kind == kSettings && (flags & kAcknowledged) == 0)
        say(frame(kSettings, kAcknowledged, 0));
      if (kind == kPing && (flags & kAcknowledged) == 0) {
        say(frame(kPing, kAcknowledged, 0, payload));
      }
      if (kind == kHeaders && (flags & kEndOfCall) != 0) ++found;
    }
    return found;
  }

 private:
  // RFC 9113: kinds of frames, and flags.
  static constexpr uint8_t kHeaders = 1, kSettings = 4, kPing = 6;
  static constexpr uint8_t kAcknowledged = 1, kEndOfCall = 1, kEndOfHeaders = 4;

  static std::string frame(uint8_t kind, uint8_t flags, uint32_t call,
                           const std::string& payload = {}) {
    std::string text;
    for (const int shift : {16, 8, 0}) text += static_cast<char>(payload.size() >> shift & 0xff);
    text += static_cast<char>(kind);
    text += static_cast<char>(flags);
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(call >> shift & 0xff);
    return text + payload;
  }

  // RFC 7541: a field whose name and value are literal and shorter than 127 bytes.
  static std::string field(const std::string& name, const std::string& value) {
    const auto text = [](const std::string& of) { return static_cast<char>(of.size()) + of; };
    return std::string(1, '\0') + text(name) + text(value);
  }

  void say(const std::string& text) const {
    [[maybe_unused]] const auto sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  std::string read(size_t count) const {
    std::string text(count, '\0');
    size_t have = 0;
    while (have < count) {
      const ssize_t got = ::recv(socket_, text.data() + have, count - have, 0);
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    text.resize(have);
    return text;
  }

  std::string address_;
  int socket_ = -1;
  uint32_t next_call_ = 1;
};

}  // namespace tenuto
