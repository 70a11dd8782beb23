// One member of all_reduce_bench, a process of its own: it is asked in lines and answers in lines.
#pragma once

#include <cstdint>
#include <string>

namespace tenuto {

// Who it is and where it listens.
struct MemberPlace {
  int32_t self = 0, members = 0;
  std::string host = "127.0.0.1", device = "lo";
  int32_t sends = 2, receives = 0;  // at once, see CommunicatorSettings
  double megabits = 0;              // of a link, where it is known
};

// The bytes of TCP's payload in a second of a link: a frame of Ethernet has 1514 bytes, 1448 of
// them payload.
inline double payload_rate(double megabits) { return megabits * 1e6 / 8 * 1448 / 1514; }

// Says "address TEXT"; is told all addresses in one line; says "ready" when all are connected. Then
// every line is a request, "MEMBERS BYTES REPEATS LATE_MICROSECONDS ALGORITHM CHUNKS LATE SLICE":
// so many in-place all-reduces of that many bytes of floats, the member at place LATE (-1: the last
// one) coming so late. The answer is when it came and when it ended, in nanoseconds of the
// machine's monotonic clock, for each. Ends with its input.
int run_member(const MemberPlace& place);

}  // namespace tenuto
