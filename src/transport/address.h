// Addresses as texts and as the kernel has them.
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

// The port of an IPv4 or IPv6 address.
uint16_t port_of(const sockaddr_storage& address);

}  // namespace tenuto
