// Several clocks that were compared pair by pair, as offsets from one of them.
#pragma once

#include <cstdint>
#include <vector>

namespace tenuto {

// Two clocks that were compared.
struct ClockPair {
  int32_t first = 0, second = 0;
  double ahead = 0;  // by how much the second is ahead of the first, in any unit of time
};

// By how much each clock is ahead of clock 0, in the unit of the pairs. A clock that no chain of
// pairs joins to clock 0 has 0, and `joined` is false.
struct ClockOffsets {
  std::vector<double> ahead;
  std::vector<bool> joined;
};

// The offsets of `clocks` clocks, along the shortest chains of pairs from clock 0; of chains of one
// length, along the one whose pairs come first.
//
// Requires: clocks >= 1, and every pair names clocks in [0, clocks)
ClockOffsets join_clocks(int32_t clocks, const std::vector<ClockPair>& pairs);

}  // namespace tenuto
