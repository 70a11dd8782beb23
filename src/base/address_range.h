// Networks as people write them: who may connect.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace tenuto {

// All addresses that begin with the same bits. An IPv4 address stands as the IPv6 address
// ::ffff:a.b.c.d, so that it is the same however a socket shows it.
struct AddressRange {
  std::array<uint8_t, 16> bytes{};
  int bits = 128;  // how many of them are the same
  // Whether the address, of IPv4 or IPv6, is one of them.
  bool contains(const sockaddr_storage& address) const;
};

// The bytes of an address, of IPv4 or IPv6, as a range has them; none if it is neither.
std::optional<std::array<uint8_t, 16>> address_bytes(const sockaddr_storage& address);

// Reads an address ("10.0.0.7", "fe80::1") or a network ("10.0.0.0/8", "fe80::/10"); none if the
// text is neither.
std::optional<AddressRange> read_address_range(const std::string& text);

}  // namespace tenuto
