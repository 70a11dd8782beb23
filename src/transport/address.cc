#include "transport/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace tenuto {

namespace {

// Whether an attempt to connect that ended with this error has reached the host.
bool is_answer(int code) { return code == 0 || code == ECONNREFUSED; }

// An attempt to connect: a socket whose answer is awaited, or what is known already.
struct Look {
  int socket = -1;
  bool reachable = true;
};

Look look_at(const std::string& address) {
  const auto there = resolve(address);
  if (!there.ok()) return {};
  const auto* const to = reinterpret_cast<const sockaddr*>(&there.value().storage);
  const int look = ::socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (look < 0) return {};
  const int code = ::connect(look, to, there.value().length) == 0 ? 0 : errno;
  // A signal does not end the attempt.
  if (code == EINPROGRESS || code == EINTR) return {look, false};
  ::close(look);
  return {-1, is_answer(code)};
}

}  // namespace

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

std::vector<bool> are_reachable(const std::vector<std::string>& addresses, Duration limit) {
  std::vector<bool> reachable;
  std::vector<pollfd> awaited;
  std::vector<size_t> places;  // of those that are awaited
  for (const std::string& address : addresses) {
    const Look look = look_at(address);
    reachable.push_back(look.reachable);
    if (look.socket < 0) continue;
    awaited.push_back({look.socket, POLLOUT, 0});
    places.push_back(reachable.size() - 1);
  }
  const Duration end = monotonic_clock().now() + limit;
  for (size_t open = awaited.size(); open > 0;) {
    const Duration left = std::max(end - monotonic_clock().now(), Duration::zero());
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int count = ::poll(awaited.data(), awaited.size(), static_cast<int>(wait));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    for (size_t i = 0; i < awaited.size(); ++i) {
      if (awaited[i].fd < 0 || awaited[i].revents == 0) continue;
      int code = 0;
      socklen_t length = sizeof(code);
      ::getsockopt(awaited[i].fd, SOL_SOCKET, SO_ERROR, &code, &length);
      reachable[places[i]] = is_answer(code);
      ::close(std::exchange(awaited[i].fd, -1));  // poll() ignores it from now on
      --open;
    }
  }
  for (const pollfd& each : awaited) {
    if (each.fd >= 0) ::close(each.fd);
  }
  return reachable;
}

}  // namespace tenuto
