// A port of the loopback for a test that must know it before somebody listens there.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/check.h"

namespace tenuto {

// As long as it lives, no other process is given the port, neither to listen nor to connect from.
// It does not listen itself, so a connection to it is refused. Who listens there must set
// SO_REUSEADDR, as our wires and etcd do.
class HeldPort {
 public:
  HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool bound = ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                       ::bind(socket_, generic, length) == 0 &&
                       ::getsockname(socket_, generic, &length) == 0;
    CHECK(bound, "no free port");
    number_ = ntohs(address.sin_port);
  }
  ~HeldPort() { ::close(socket_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  uint16_t number() const { return number_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(number_); }

 private:
  const int socket_;
  uint16_t number_ = 0;
};

}  // namespace tenuto
