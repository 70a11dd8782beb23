// All-reduces between real processes: over loopback, compared with Gloo and Open MPI, and over
// network namespaces with shaped links, compared with the price too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenuto {

// What is measured.
struct LiveSettings {
  std::string source;              // the folder of bench/ and tools/
  std::string python;              // a Python with torch, for Gloo; empty = no Gloo
  std::string mpi;                 // Open MPI's program (all_reduce_mpi); empty = no Open MPI
  std::string wire = "auto";       // of our members, see wire_choice
  std::string progress = "event";  // of our members, see wire_progress
  bool survives = false;           // loopback: measure groups that survive deaths as well
  int32_t members = 8, least_members = 4;
  int32_t rounds = 5;
  int32_t sends = 2, receives = 0;  // concurrent, see CommunicatorSettings
  int64_t slice_bytes = 512 << 10;
  int64_t most_bytes = 256 << 20;
  int32_t megabits = 200;                         // shaped: rate of each host
  std::vector<int64_t> shaped_mib{1, 4};          // shaped: sizes of tensors
  std::vector<double> lateness{0, 0.5, 1, 2, 3};  // shaped: in units of the ring's time
};

// No member is late. Prints a line for each size from 64 KiB up: the medians over the rounds, in
// which all columns take turns, and how many times as fast our best algorithm is as Gloo, as Open
// MPI, and, with `survives`, as the best of our algorithms in groups that survive deaths.
int print_loopback(const LiveSettings& settings);

// On `least_members` to `members` hosts one member is late by each `lateness`. Prints the time from
// its arrival to the end, beside the price, the ring, Gloo and Open MPI.
int print_shaped(const LiveSettings& settings);

}  // namespace tenuto
