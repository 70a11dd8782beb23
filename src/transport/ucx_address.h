// Addresses and sockets of the UCX wire. Private to its files.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tenuto {

// An address that the kernel understands.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Resolves "host:port" or "[host]:port". Host names only with `names`, because a look-up may take
// long. Errors: Invalid.
Result<SocketAddress> resolve(const std::string& address, bool names = true);

// The network device that owns `host`. Errors: Invalid when none does.
Result<std::string> device_of(const std::string& host);

// The port of an IPv4 or IPv6 address.
uint16_t port_of(const sockaddr_storage& address);

// Takes this process's sockets at a port away from UCX's own thread: when this returns, that thread
// accepts and reads nothing there any more. Listeners are taken away first; after that no
// connection is accepted any more, so none is missed. The other ends see their connections end.
void silence(uint16_t port);

}  // namespace tenuto
