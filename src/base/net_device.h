// What the kernel says of a network device of this host: how many bytes it has carried, and how
// fast it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenuto {

// The bytes that a device has carried since it came up, whoever sent them.
struct DeviceBytes {
  int64_t received = 0, sent = 0;
  bool operator==(const DeviceBytes&) const = default;
};

// The bytes of the device in this text, which is that of /proc/net/dev. None: the text has no such
// device, or its line is not as the kernel writes it.
std::optional<DeviceBytes> device_bytes_in(std::string_view text, std::string_view device);

// The same of this host; none where the kernel does not say. `proc`: another folder for tests.
std::optional<DeviceBytes> device_bytes(const std::string& device,
                                        const std::string& proc = "/proc");

// Bytes per second in one direction from this text, which is that of /sys/class/net/DEVICE/speed,
// in megabits per second. None: not a number above 0. The kernel writes -1 where it does not know.
std::optional<int64_t> device_rate_in(std::string_view text);

// The same of this host; none where the kernel does not say, as for "lo". `sys`: another folder
// for tests.
std::optional<int64_t> device_rate(const std::string& device,
                                   const std::string& sys = "/sys/class/net");

}  // namespace tenuto
