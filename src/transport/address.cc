#include "transport/address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "base/text.h"

namespace tenuto {

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Result<SocketAddress> resolve(const std::string& address, bool names) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty() || colon + 1 >= address.size()) {
    return invalid(cat("'", address, "' is not an address: expected host:port"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (!names) hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (code != 0 || found == nullptr) {
    return invalid(cat("'", address, "' cannot be resolved: ", gai_strerror(code)));
  }
  SocketAddress resolved;
  std::memcpy(&resolved.storage, found->ai_addr, found->ai_addrlen);
  resolved.length = found->ai_addrlen;
  freeaddrinfo(found);
  return resolved;
}

}  // namespace tenuto
