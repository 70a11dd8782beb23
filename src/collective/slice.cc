#include "collective/slice.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

// The collective with only those moves for which `wanted` is true, in the same rounds.
template <class Wanted>
Collective with_moves(const Collective& collective, const Wanted& wanted) {
  Collective part{collective.members, collective.chunk_count, {}};
  part.rounds.resize(collective.rounds.size());
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    for (const Move& move : collective.rounds[r].moves) {
      if (wanted(move)) part.rounds[r].moves.push_back(move);
    }
  }
  return part;
}

}  // namespace

Collective sliced(const Collective& collective, int32_t slices) {
  const int64_t chunks = int64_t{collective.chunk_count} * slices;
  CHECK(slices >= 1 && chunks <= std::numeric_limits<int32_t>::max(),
        cat(collective.chunk_count, " chunks in ", slices, " slices each"));
  if (slices == 1) return collective;
  Collective cut{collective.members, static_cast<int32_t>(chunks), {}};
  cut.rounds.resize(collective.rounds.size());
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    std::vector<Move>& moves = cut.rounds[r].moves;
    moves.reserve(collective.rounds[r].moves.size() * static_cast<size_t>(slices));
    for (const Move& move : collective.rounds[r].moves) {
      for (int32_t i = 0; i < slices; ++i) {
        moves.push_back({move.from, move.to, {move.chunk.value * slices + i}, move.add});
      }
    }
  }
  return cut;
}

int32_t slices_for(int64_t bytes, int32_t chunks, int64_t slice_bytes) {
  CHECK(bytes >= 0 && chunks >= 1 && slice_bytes >= 0,
        cat(bytes, " bytes in ", chunks, " chunks and slices of ", slice_bytes));
  if (slice_bytes == 0) return 1;
  const int64_t chunk = (bytes + chunks - 1) / chunks;
  const int64_t slices = (chunk + slice_bytes - 1) / slice_bytes;
  return static_cast<int32_t>(std::clamp<int64_t>(slices, 1, kMostSlices));
}

Collective delayed(const Collective& collective, std::span<const int32_t> delays) {
  CHECK(std::ssize(delays) == collective.chunk_count,
        cat(delays.size(), " delays for ", collective.chunk_count, " chunks"));
  std::map<int64_t, Round> rounds;  // those that have moves
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    for (const Move& move : collective.rounds[r].moves) {
      const int32_t delay = delays[static_cast<size_t>(move.chunk.value)];
      CHECK(delay >= 0, cat("chunk ", move.chunk, " has a delay of ", delay));
      rounds[static_cast<int64_t>(r) + delay].moves.push_back(move);
    }
  }
  Collective ordered{collective.members, collective.chunk_count, {}};
  ordered.rounds.reserve(rounds.size());
  for (auto& [place, round] : rounds) ordered.rounds.push_back(std::move(round));
  return ordered;
}

std::vector<int32_t> delays_by_growth(int64_t elements, int32_t chunks,
                                      std::span<const ElementRange> parts) {
  CHECK(elements >= 0 && chunks >= 1, cat(elements, " elements in ", chunks, " chunks"));
  std::vector<size_t> grown(static_cast<size_t>(chunks));  // parts until the chunk is complete
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto [first, end] = parts[p];
    CHECK(0 <= first && first <= end && end <= elements,
          cat("part ", p, " is [", first, ", ", end, ") of ", elements, " elements"));
    // The last chunk that begins at or before `first`; so it ends behind it.
    int64_t c = parts[p].empty() ? chunks : ((first + 1) * chunks - 1) / elements;
    for (; c < chunks && chunk_range(elements, c, chunks).first < end; ++c) {
      if (!chunk_range(elements, c, chunks).empty()) grown[static_cast<size_t>(c)] = p + 1;
    }
  }
  std::vector<int32_t> order(grown.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t left, int32_t right) {
    return grown[static_cast<size_t>(left)] < grown[static_cast<size_t>(right)];
  });
  std::vector<int32_t> delays(grown.size());
  for (size_t i = 0; i < order.size(); ++i) {
    delays[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  }
  return delays;
}

Collective own_moves(const Collective& collective, WorkerId self) {
  return with_moves(collective,
                    [self](const Move& move) { return move.from == self || move.to == self; });
}

Collective of_chunk(const Collective& collective, ChunkId chunk) {
  Collective one =
      with_moves(collective, [chunk](const Move& move) { return move.chunk == chunk; });
  one.chunk_count = 1;
  for (Round& round : one.rounds) {
    for (Move& move : round.moves) move.chunk = {0};
  }
  return one;
}

}  // namespace tenuto
