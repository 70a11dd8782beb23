// What the kernel says of network devices, and texts that it does not write.
#include "base/net_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tenuto {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs "
    "drop fifo colls carrier compressed\n"
    "    lo: 1500      10    0    0    0     0          0         0 1500      10    0    0    0    "
    " "
    "0       0          0\n"
    "  eth0:4096      10    0    0    0     0          0         3 8192      20    0    0    0     "
    "0       0          0\n"
    "  eth1: 12 x\n"
    "  eth2: -1 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n"
    "  eth3: 99999999999999999999 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n";

TEST(NetDevice, TheBytesOfADevice) {
  EXPECT_EQ(device_bytes_in(kText, "lo"), (DeviceBytes{1500, 1500}));
  EXPECT_EQ(device_bytes_in(kText, "eth0"), (DeviceBytes{4096, 8192})) << "no blank is there";
  for (const char* device : {"eth", "eth1", "eth2", "eth3", "eth9", "", "face |bytes"}) {
    EXPECT_FALSE(device_bytes_in(kText, device).has_value()) << device;
  }
  EXPECT_FALSE(device_bytes_in("", "lo").has_value());
  EXPECT_FALSE(device_bytes_in("lo: 1 2 3 4 5 6 7 8", "lo").has_value()) << "it is cut";
  EXPECT_EQ(device_bytes_in("lo: 1 2 3 4 5 6 7 8 9", "lo"), (DeviceBytes{1, 9}));
}

TEST(NetDevice, TheRateOfADevice) {
  EXPECT_EQ(device_rate_in("1000\n"), 125'000'000);
  for (const char* text : {"", "\n", "-1\n", "0\n", "fast\n", "10.5\n", "99999999999\n"}) {
    EXPECT_FALSE(device_rate_in(text).has_value()) << text;
  }
}

TEST(NetDevice, OfThisHost) {
  char name[] = "/tmp/tenuto-devices-XXXXXX";
  const std::string folder = mkdtemp(name);
  fs::create_directories(folder + "/net");
  fs::create_directories(folder + "/eth0");
  std::ofstream(folder + "/net/dev") << kText;
  std::ofstream(folder + "/eth0/speed") << "100\n";
  EXPECT_EQ(device_bytes("lo", folder), (DeviceBytes{1500, 1500}));
  EXPECT_EQ(device_rate("eth0", folder), 12'500'000);
  EXPECT_FALSE(device_rate("lo", folder).has_value());
  fs::remove_all(folder);
  EXPECT_FALSE(device_bytes("lo", folder).has_value());
  EXPECT_FALSE(device_rate("lo").has_value()) << "loopback has no rate";
}

}  // namespace
}  // namespace tenuto
