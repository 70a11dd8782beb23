// A cluster file. What is read has devices, a rate between every two of them, and ports of some of
// them.
#include <algorithm>

#include "target.h"
#include "world/cluster_file.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto cluster = cluster_from_json(text_of(data, size), "input");
  if (!cluster.ok()) {
    expect_sentence(cluster.error(), "input");
    return 0;
  }
  const auto count = static_cast<int32_t>(cluster.value().workers.size());
  CHECK(count >= 1 && count <= kMostDevices, "some devices");
  for (int32_t one = 0; one < std::min(count, 8); ++one) {
    for (int32_t other = 0; other < std::min(count, 8); ++other) {
      if (one == other) continue;
      CHECK(cluster.value().link({one}, {other}).bytes_per_second > 0, "a rate of each pair");
    }
  }
  for (const Port& port : cluster.value().ports) {
    CHECK(!port.devices.empty() && port.devices.front().value >= 0 &&
              port.devices.back().value < count && port.bytes_per_second > 0,
          "devices and a rate of each port");
  }
  return 0;
}
