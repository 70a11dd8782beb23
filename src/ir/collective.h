// A collective is data: rounds of chunk moves among members, generated, checked, priced and
// executed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"

namespace tenuto {

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

// An all-reduce among `members` over `chunk_count` nearly equal pieces of one tensor. Chunk c of n
// elements is [c n / chunk_count, (c + 1) n / chunk_count).
struct Collective {
  std::vector<WorkerId> members;
  int32_t chunk_count = 0;
  std::vector<Round> rounds;
  auto operator<=>(const Collective&) const = default;
};

}  // namespace tenuto
