// The devices of a cluster and the rates between them, read from a JSON file.
//
//   {"devices": 8,
//    "bandwidth_gbps": {"inside": 25, "between": 6.25, "per_node": 4},
//    "memory_bytes": 16e9,
//    "speed": [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]}
//
// Rates are in gigabytes (10^9 bytes) per second, of each direction of a connection. In place of
// the three numbers, `bandwidth_gbps` may be a matrix: row = sender, column = receiver; its
// diagonal is ignored. Without `memory_bytes` memory is unlimited; without `speed` every device has
// speed 1. Both are one number for all devices or a list with one for each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "world/cluster.h"

namespace tenuto {

// The most devices of a cluster, and of one that is given by a matrix.
inline constexpr int32_t kMostDevices = 16'384, kMostMatrixDevices = 4'096;

// Errors: Invalid/Call with `source` and the line and column of a fault of form, or the path of a
//         value (bandwidth_gbps[2][5]): an unknown, missing or repeated key, a wrong type, a number
//         out of range, a list or matrix of another size than `devices`, no rate between two
//         devices
Result<Cluster> cluster_from_json(std::string_view text, const std::string& source);

// The same for a file.
Result<Cluster> load_cluster(const std::string& path);

}  // namespace tenuto
