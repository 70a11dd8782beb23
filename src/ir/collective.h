// A collective is data: rounds of chunk moves among members, generated, checked, priced and
// executed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"

namespace tenuto {

// Elements [first, end) of a tensor.
struct ElementRange {
  int64_t first = 0, end = 0;
  // Whether the range has no elements.
  bool empty() const { return first == end; }
  auto operator<=>(const ElementRange&) const = default;
};

// The elements of chunk `chunk` of `chunks` in a tensor of `elements`; sizes differ by one at most.
inline ElementRange chunk_range(int64_t elements, int64_t chunk, int64_t chunks) {
  return {chunk * elements / chunks, (chunk + 1) * elements / chunks};
}

// One chunk goes from one member to another: added to what is there, or put in its place.
struct Move {
  WorkerId from, to;
  ChunkId chunk;
  bool add = false;
  auto operator<=>(const Move&) const = default;
};

// Moves that may run at the same time: all of them read the state from before the round.
struct Round {
  std::vector<Move> moves;
  auto operator<=>(const Round&) const = default;
};

// An all-reduce among `members` over `chunk_count` nearly equal pieces of one tensor, as
// chunk_range() cuts it.
struct Collective {
  std::vector<WorkerId> members;
  int32_t chunk_count = 0;
  std::vector<Round> rounds;
  auto operator<=>(const Collective&) const = default;
};

}  // namespace tenuto
