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

// Reads device_bytes_in from this host's /proc; none if the kernel does not have the device there.
// `proc`: another folder, for tests.
std::optional<DeviceBytes> device_bytes(const std::string& device,
                                        const std::string& proc = "/proc");

// The rate of a device in bytes per second and direction. `text` is the content of
// /sys/class/net/DEVICE/speed, in megabits per second. None = it is not a number above 0: the
// kernel writes -1 where it does not know the rate.
std::optional<int64_t> device_rate_in(std::string_view text);

// Reads device_rate_in from this host's /sys; none where the kernel does not say, as for "lo".
// `sys`: another folder, for tests.
std::optional<int64_t> device_rate(const std::string& device,
                                   const std::string& sys = "/sys/class/net");

}  // namespace tenuto
