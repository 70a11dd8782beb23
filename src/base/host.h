// The machine that this process runs on, the address of a network device, and the host of an
// address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenuto {

// The machine's name, as the system gives it.
std::string host_name();

// The IPv4 address of a network device ("lo", "eth0"); empty when it has none.
std::string address_of_device(const std::string& device);

// What a network device carries in each direction, in bytes per second, as the kernel says; 0 = it
// does not say so, as of "lo".
int64_t port_rate_of_device(const std::string& device);

// The host in "host:port" or "[host]:port", with its brackets; all of a text without a port.
std::string_view host_of(std::string_view address);

}  // namespace tenuto
