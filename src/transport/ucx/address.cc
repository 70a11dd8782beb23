#include "transport/ucx/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <ucs/async/async_fwd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/text.h"

namespace tenuto {
namespace {

// The descriptors of this process that are TCP sockets at the port: either its listeners, or the
// connections that these have accepted.
std::vector<int> sockets_at(uint16_t port, bool listening) {
  std::vector<int> found;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length) != 0 ||
        (local.ss_family != AF_INET && local.ss_family != AF_INET6) || port_of(local) != port) {
      continue;
    }
    int listens = 0;
    length = sizeof(listens);
    getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
    if ((listens != 0) == listening) found.push_back(descriptor);
  }
  return found;
}

bool same_host(const sockaddr* left, const SocketAddress& right) {
  if (left == nullptr || left->sa_family != right.storage.ss_family) return false;
  if (left->sa_family == AF_INET) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(left);
    const auto* b = reinterpret_cast<const sockaddr_in*>(&right.storage);
    const bool loop = (ntohl(b->sin_addr.s_addr) >> 24) == 127;
    return a->sin_addr.s_addr == b->sin_addr.s_addr ||
           (loop && (ntohl(a->sin_addr.s_addr) >> 24) == 127);
  }
  if (left->sa_family != AF_INET6) return false;
  const auto* a = reinterpret_cast<const sockaddr_in6*>(left);
  const auto* b = reinterpret_cast<const sockaddr_in6*>(&right.storage);
  return std::memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr)) == 0;
}

}  // namespace

void silence(uint16_t port) {
  constexpr int kWait = 1;  // wait until the thread has left the descriptor's handler
  for (const int descriptor : sockets_at(port, true)) ucs_async_remove_handler(descriptor, kWait);
  for (const int descriptor : sockets_at(port, false)) {
    ucs_async_remove_handler(descriptor, kWait);
    shutdown(descriptor, SHUT_RDWR);
  }
}

Result<std::string> device_of(const std::string& host) {
  const bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';
  const auto wanted = resolve(bare_v6 ? cat("[", host, "]:0") : cat(host, ":0"));
  if (!wanted.ok()) return wanted.error();
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return invalid("this machine's network devices cannot be listed");
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (same_host(one->ifa_addr, wanted.value())) name = one->ifa_name;
  }
  freeifaddrs(all);
  if (name.empty()) {
    return invalid(cat("no network device of this machine has the address '", host,
                       "': name the device or listen at an address of this machine"));
  }
  return name;
}

}  // namespace tenuto
