// Addresses as texts and as the kernel has them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"

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

// The address of this machine from which it reaches `address` ("host:port", names too). A wire with
// peers there should listen at it. Nothing is sent.
//
// Errors: Invalid  no such host, or no route to it
Result<std::string> host_towards(const std::string& address);

// Whether the host of each address ("host:port") answers an attempt to connect, by accepting or
// refusing it. All are asked at the same time, and the limit is for all together. Also true for an
// address that cannot be resolved or for which no socket can be opened.
std::vector<bool> are_reachable(const std::vector<std::string>& addresses, Duration limit);

}  // namespace tenuto
