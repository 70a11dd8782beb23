#include "base/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

namespace tenuto {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string address_of_device(const std::string& device) {
  ifaddrs* all = nullptr;
  std::string address;
  if (getifaddrs(&all) != 0) return address;
  for (const ifaddrs* of = all; of != nullptr; of = of->ifa_next) {
    if (of->ifa_addr == nullptr || of->ifa_addr->sa_family != AF_INET || device != of->ifa_name) {
      continue;
    }
    char text[INET_ADDRSTRLEN] = {};
    const auto* in = reinterpret_cast<const sockaddr_in*>(of->ifa_addr);
    if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)) != nullptr) address = text;
    break;
  }
  freeifaddrs(all);
  return address;
}

std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

}  // namespace tenuto
