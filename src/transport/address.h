// Addresses as texts and as the kernel has them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

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

// Whether the host of `address` ("host:port") answers an attempt to connect within the limit, by
// accepting or refusing it. Also true when the address cannot be resolved or no socket can be
// opened.
bool is_reachable(const std::string& address, Duration limit);

}  // namespace tenuto
