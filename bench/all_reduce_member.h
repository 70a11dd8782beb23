// One member of all_reduce_bench, in its own process: it reads requests and writes answers as
// lines.
#pragma once

#include <cstdint>
#include <string>

namespace tenuto {

// Which member this is, and where it listens.
struct MemberPlace {
  int32_t self = 0, members = 0;
  std::string host = "127.0.0.1", device = "lo";
  std::string wire = "auto";        // see wire_choice
  std::string progress = "event";   // see wire_progress
  int32_t sends = 2, receives = 0;  // concurrent, see CommunicatorSettings
  double megabits = 0;              // rate of a link; 0 = unknown
};

// The bytes of TCP payload per second of a link: an Ethernet frame has 1514 bytes, 1448 of them
// payload.
inline double payload_rate(double megabits) { return megabits * 1e6 / 8 * 1448 / 1514; }

// Writes "address TEXT", reads all addresses in one line, and writes "ready" when all members are
// connected. Then every line read is a request, "MEMBERS BYTES REPEATS LATE_MICROSECONDS ALGORITHM
// CHUNKS LATE SLICE CALLS SURVIVE_DEATHS". REPEATS times, the member at place LATE (-1: the last
// one) comes LATE_MICROSECONDS late, and all run CALLS in-place all-reduces of BYTES bytes of
// floats in a row, in a group that survives deaths if SURVIVE_DEATHS is 1. The answer is, for each
// repeat, when this member arrived and when it ended, in nanoseconds of the machine's monotonic
// clock. Returns when its input ends.
int run_member(const MemberPlace& place);

}  // namespace tenuto
