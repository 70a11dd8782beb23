#include "collective/circulant.h"

#include <algorithm>

#include "base/check.h"

namespace tenuto {

namespace {

// How many blocks a member still sums before each round: n, n / 2 rounded up, ... 2.
std::vector<size_t> halvings(size_t count) {
  std::vector<size_t> sizes;
  for (; count > 1; count = (count + 1) / 2) sizes.push_back(count);
  return sizes;
}

// A round in which member i sends blocks i + [first, end) to member i + step; `add` is as in Move.
Round shift(const std::vector<WorkerId>& circle, const Blocks& blocks, size_t step, size_t first,
            size_t end, bool add) {
  const size_t count = circle.size();
  Round round;
  size_t chunks = 0;
  for (const auto& block : blocks) chunks += block.size();
  round.moves.reserve(chunks * (end - first));
  // A comparison is less work than a division, and there is one for each move.
  const auto wrapped = [count](size_t place) { return place < count ? place : place - count; };
  for (size_t i = 0; i < count; ++i) {
    const WorkerId from = circle[i], to = circle[wrapped(i + step)];
    for (size_t b = first; b < end; ++b) {
      for (const ChunkId chunk : blocks[wrapped(i + b)]) {
        round.moves.push_back({from, to, chunk, add});
      }
    }
  }
  return round;
}

void append(std::vector<Round>& rounds, Round round) {
  if (!round.moves.empty()) rounds.push_back(std::move(round));
}

}  // namespace

std::vector<Round> circulant_reduce_scatter(const std::vector<WorkerId>& circle,
                                            const Blocks& blocks) {
  CHECK(circle.size() == blocks.size(), "a block for each member");
  std::vector<Round> rounds;
  for (const size_t size : halvings(circle.size())) {
    const size_t half = (size + 1) / 2;
    append(rounds, shift(circle, blocks, half, half, size, true));
  }
  return rounds;
}

std::vector<Round> circulant_all_gather(const std::vector<WorkerId>& circle, const Blocks& blocks) {
  CHECK(circle.size() == blocks.size(), "a block for each member");
  const size_t count = circle.size();
  std::vector<size_t> sizes = halvings(count);
  std::reverse(sizes.begin(), sizes.end());
  std::vector<Round> rounds;
  for (const size_t size : sizes) {
    // Member i has blocks i to i + half, and gives those that the member `half` behind lacks.
    const size_t half = (size + 1) / 2;
    append(rounds, shift(circle, blocks, count - half, 0, size - half, false));
  }
  return rounds;
}

std::vector<Round> ring_reduce_scatter(const std::vector<WorkerId>& circle, const Blocks& blocks) {
  CHECK(circle.size() == blocks.size(), "a block for each member");
  const size_t count = circle.size();
  std::vector<Round> rounds;
  rounds.reserve(count);
  for (size_t turn = 0; turn + 1 < count; ++turn) {
    const size_t block = count - 1 - turn;  // member i hands on the block of i - 1 - turn
    append(rounds, shift(circle, blocks, 1, block, block + 1, true));
  }
  return rounds;
}

std::vector<Round> ring_all_gather(const std::vector<WorkerId>& circle, const Blocks& blocks) {
  CHECK(circle.size() == blocks.size(), "a block for each member");
  const size_t count = circle.size();
  std::vector<Round> rounds;
  rounds.reserve(count);
  for (size_t turn = 0; turn + 1 < count; ++turn) {
    const size_t block = (count - turn) % count;
    append(rounds, shift(circle, blocks, 1, block, block + 1, false));
  }
  return rounds;
}

Blocks one_chunk_each(size_t count) {
  Blocks blocks(count);
  for (size_t i = 0; i < count; ++i) blocks[i] = {{static_cast<int32_t>(i)}};
  return blocks;
}

}  // namespace tenuto
