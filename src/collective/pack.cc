#include "collective/pack.h"

#include <algorithm>
#include <map>

namespace tenuto {

namespace {

// The rounds in which a port is taken.
class Port {
 public:
  bool free(size_t round) const { return round >= taken_.size() || !taken_[round]; }
  void take(size_t round) {
    if (round >= taken_.size()) taken_.resize(round + 1);
    taken_[round] = true;
    while (!free(first_free_)) ++first_free_;
  }
  size_t first_free() const { return first_free_; }

 private:
  std::vector<bool> taken_;
  size_t first_free_ = 0;
};

// What is known of a member while moves are placed.
struct Side {
  Port out, in;
  std::vector<size_t> has_from;   // [chunk] the round from which on it has all that came so far
  std::vector<size_t> sent_last;  // [chunk] one after the last round in which it is sent
};

}  // namespace

std::vector<Round> pack_rounds(const std::vector<Move>& moves, int32_t chunk_count) {
  std::map<WorkerId, Side> sides;
  std::vector<Round> rounds;
  for (const Move& move : moves) {
    const auto chunk = static_cast<size_t>(move.chunk.value);
    for (const WorkerId member : {move.from, move.to}) {
      Side& side = sides[member];
      side.has_from.resize(static_cast<size_t>(chunk_count));
      side.sent_last.resize(static_cast<size_t>(chunk_count));
    }
    Side& from = sides[move.from];
    Side& to = sides[move.to];
    // The receiver has sent this chunk earlier in the list, without what this move brings. So this
    // move is in the round of the last such send at the earliest: moves of one round read the state
    // before it.
    const size_t sent = to.sent_last[chunk] == 0 ? 0 : to.sent_last[chunk] - 1;
    size_t round =
        std::max({from.has_from[chunk], sent, from.out.first_free(), to.in.first_free()});
    while (!from.out.free(round) || !to.in.free(round)) ++round;
    from.out.take(round);
    to.in.take(round);
    from.sent_last[chunk] = std::max(from.sent_last[chunk], round + 1);
    to.has_from[chunk] = std::max(to.has_from[chunk], round + 1);
    if (round >= rounds.size()) rounds.resize(round + 1);
    rounds[round].moves.push_back(move);
  }
  return rounds;
}

}  // namespace tenuto
