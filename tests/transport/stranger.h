// Whoever connects to a wire and is none.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "transport/address.h"

namespace tenuto {

// A bare socket that speaks no wire.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const auto to = resolve(address);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto* where = reinterpret_cast<const sockaddr*>(&to.value().storage);
    EXPECT_EQ(::connect(socket_, where, to.value().length), 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { ::close(socket_); }
  void say(const std::string& text) const {
    [[maybe_unused]] const auto sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Reads until the other end closes.
  size_t listen() const {
    size_t total = 0;
    char bytes[4096];
    while (true) {
      const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
      if (count <= 0) return total;
      total += static_cast<size_t>(count);
    }
  }

 private:
  int socket_;
};

}  // namespace tenuto
