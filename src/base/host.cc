#include "base/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/number.h"

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

int64_t port_rate_of_device(const std::string& device) {
  constexpr int64_t kBytesPerMegabit = 125'000, kMostMegabits = 100'000'000;
  if (device.empty() || device.find('/') != std::string::npos) return 0;
  // A device without a link has no speed, or -1.
  const auto file = read_file("/sys/class/net/" + device + "/speed");
  if (!file.ok()) return 0;
  const std::string& text = file.value();
  const auto megabits = number_in<int64_t>(text.substr(0, text.find('\n')));
  return std::clamp<int64_t>(megabits.value_or(0), 0, kMostMegabits) * kBytesPerMegabit;
}

std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

}  // namespace tenuto
