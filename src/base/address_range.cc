#include "base/address_range.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tenuto {
namespace {

using Bytes16 = std::array<uint8_t, 16>;
constexpr int kBitsBeforeV4 = 96;

Bytes16 mapped(const in_addr& v4) {
  Bytes16 bytes{};
  bytes[10] = bytes[11] = 0xff;
  std::memcpy(bytes.data() + 12, &v4, sizeof(v4));
  return bytes;
}

}  // namespace

std::optional<Bytes16> address_bytes(const sockaddr_storage& address) {
  Bytes16 bytes{};
  if (address.ss_family == AF_INET) {
    return mapped(reinterpret_cast<const sockaddr_in*>(&address)->sin_addr);
  }
  if (address.ss_family != AF_INET6) return {};
  std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr,
              bytes.size());
  return bytes;
}

bool AddressRange::contains(const sockaddr_storage& address) const {
  const auto other = address_bytes(address);
  if (!other) return false;
  const auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(bytes.begin(), bytes.begin() + static_cast<long>(whole), other->begin())) {
    return false;
  }
  const int rest = bits % 8;
  return rest == 0 || (bytes[whole] ^ (*other)[whole]) >> (8 - rest) == 0;
}

std::optional<AddressRange> read_address_range(const std::string& text) {
  const size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  AddressRange range;
  in_addr v4{};
  const bool is_v4 = inet_pton(AF_INET, address.c_str(), &v4) == 1;
  if (is_v4) {
    range.bytes = mapped(v4);
  } else if (inet_pton(AF_INET6, address.c_str(), range.bytes.data()) != 1) {
    return {};
  }
  if (slash == std::string::npos) return range;
  const char* const end = text.data() + text.size();
  int bits = 0;
  const auto read = std::from_chars(text.data() + slash + 1, end, bits);
  const int before = is_v4 ? kBitsBeforeV4 : 0;
  if (read.ec != std::errc{} || read.ptr != end || bits < 0 || bits + before > 128) return {};
  range.bits = bits + before;
  return range;
}

}  // namespace tenuto
