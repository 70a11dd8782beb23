// All-reduces between real processes: over the loopback beside Gloo and Open MPI, and over network
// namespaces whose links are shaped beside the price.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenuto {

// What is measured.
struct LiveSettings {
  std::string source;  // the folder of bench/ and tools/
  std::string python;  // one that has torch, for Gloo; empty = without
  std::string mpi;     // Open MPI's side (all_reduce_mpi); empty = without
  int32_t members = 8, least_members = 4;
  int32_t rounds = 5;
  int32_t sends = 2, receives = 0;  // at once, see CommunicatorSettings
  int64_t slice_bytes = 512 << 10;
  int64_t most_bytes = 256 << 20;
  int32_t megabits = 200;                         // shaped: of each host
  std::vector<int64_t> shaped_mib{1, 4};          // shaped: of tensors
  std::vector<double> lateness{0, 0.5, 1, 2, 3};  // shaped: in times of the ring's
};

// Sizes from 64 KiB on, nobody late: a line a size, the medians of the rounds in which all take
// turns, and the ratio of our best algorithm to the others.
int print_loopback(const LiveSettings& settings);

// `least_members` to `members` hosts, late by 0 to 3 times the ring's time: how long after the late
// member's arrival, beside the price and beside the ring, Gloo and Open MPI.
int print_shaped(const LiveSettings& settings);

}  // namespace tenuto
