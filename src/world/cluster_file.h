// The devices of a cluster and the links between them, read from a JSON file and written to one.
//
//   {"devices": 8,
//    "bandwidth_gbps": {"inside": 25, "between": 6.25, "per_node": 4},
//    "latency_ms": {"inside": 0.01, "between": 0.1},
//    "memory_bytes": 16e9,
//    "speed": [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5],
//    "ports": [{"name": "host 0", "devices": [0, 1, 2, 3], "bandwidth_gbps": 12.5},
//              {"name": "host 1", "devices": [4, 5, 6, 7], "bandwidth_gbps": 12.5}]}
//
// Rates are in gigabytes (10^9 bytes) per second, in each direction of a connection; latencies are
// one way. In place of the three numbers, `bandwidth_gbps` may be a matrix: a row for each sender
// and a column for each receiver; its diagonal is ignored. `place` is a list with the class of each
// device (same host, same rack, ...). With it, rows and columns are classes, and the diagonal is
// for two devices of one class. `latency_ms` is one number for all links or has the form of
// `bandwidth_gbps`, without per_node; if it is missing, latency is 0. `memory_bytes` and `speed`
// are one number for all devices or a list with one for each; if missing, memory is unlimited and
// the speed is 1. `duplex` is "full" or "half": with half, both directions of each link share its
// rate; if missing, it is full.
//
// `ports` are devices whose messages share a rate, in each direction or, with `duplex` = "half", in
// both together. The messages that leave or enter the devices of a port pass it, with `links` =
// "all" also those between two of its devices. A device may be in several ports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "world/cluster.h"

namespace tenuto {

// The most devices of a cluster; and the most devices or classes of a cluster with a matrix.
inline constexpr int32_t kMostDevices = 16'384, kMostMatrixDevices = 4'096;
// The most ports of a cluster.
inline constexpr int32_t kMostPorts = 2 * kMostDevices;

// Errors: Invalid/Call with `source` and the line and column of a fault of form, or the path of a
//         value (bandwidth_gbps[2][5]): an unknown, missing or repeated key, a wrong type, a number
//         out of range, a list or matrix of another size than `devices`, no rate between two
//         devices, a port without devices or with a device that is unknown or stands twice, two
//         ports of one name
Result<Cluster> cluster_from_json(std::string_view text, const std::string& source);

// The same for a file.
Result<Cluster> load_cluster(const std::string& path);

// The cluster as the text of such a file. An unlimited rate is written as the largest rate.
//
// Requires: at least one worker, all alive; kMostMatrixDevices at most if there are exceptions
std::string to_json(const Cluster& cluster);

}  // namespace tenuto
