#include "transport/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
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

Result<std::string> host_towards(const std::string& address) {
  const auto there = resolve(address);
  if (!there.ok()) return there.error();
  const auto* const to = reinterpret_cast<const sockaddr*>(&there.value().storage);
  sockaddr_storage here{};
  socklen_t length = sizeof(here);
  auto* const generic = reinterpret_cast<sockaddr*>(&here);
  // Connecting a datagram socket gives it a local address and sends nothing.
  const int probe = ::socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool found = probe >= 0 && ::connect(probe, to, there.value().length) == 0 &&
                     ::getsockname(probe, generic, &length) == 0;
  if (probe >= 0) ::close(probe);
  char text[NI_MAXHOST];
  if (!found ||
      ::getnameinfo(generic, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return invalid(cat("this machine has no way to ", address, ": is the address right?"));
  }
  return std::string(text);
}

bool is_reachable(const std::string& address, Duration limit) {
  const auto there = resolve(address);
  if (!there.ok()) return true;
  const auto* const to = reinterpret_cast<const sockaddr*>(&there.value().storage);
  const int look = ::socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (look < 0) return true;
  int code = ::connect(look, to, there.value().length) == 0 ? 0 : errno;
  if (code == EINPROGRESS) {
    pollfd answer{look, POLLOUT, 0};
    const int wait = static_cast<int>(limit / std::chrono::milliseconds(1));
    socklen_t length = sizeof(code);
    code = ETIMEDOUT;
    if (::poll(&answer, 1, wait) > 0) ::getsockopt(look, SOL_SOCKET, SO_ERROR, &code, &length);
  }
  ::close(look);
  return code == 0 || code == ECONNREFUSED;
}

}  // namespace tenuto
