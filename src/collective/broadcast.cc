// The broadcast: the exchange with a late member (late_rounds.h) in which nothing is sent back to
// it, so that each chunk goes from the root to all.
#include <algorithm>

#include "collective/algorithm.h"
#include "collective/late.h"
#include "collective/late_rounds.h"

namespace tenuto {

namespace {

Result<Procedure> broadcast(const CollectiveShape& shape) {
  const auto count = static_cast<int32_t>(shape.members.size());
  const WorkerId root = shape.root.value >= 0 ? shape.root : shape.members[0];
  const int32_t asked = shape.chunks > 0 ? shape.chunks : std::max(count - 1, 1);
  const int32_t chunks = count > 1 ? late_chunks(count, asked) : asked;
  Procedure made;
  made.name = "broadcast";
  made.goal = Goal::AllGather;
  made.owners.assign(static_cast<size_t>(chunks), root);
  made.collective = {shape.members, chunks, {}};
  if (count == 1) return made;
  auto exchange = late_rounds(count, chunks);
  if (!exchange.ok()) return exchange.error();
  std::vector<Round> rounds =
      rounds_among(std::move(exchange).value(), without(shape.members, {root}), root);
  for (Round& round : rounds) {
    std::erase_if(round.moves, [&](const Move& move) { return move.to == root; });
    for (Move& move : round.moves) move.add = false;
  }
  while (rounds.back().moves.empty()) rounds.pop_back();
  append(made, std::move(rounds), "broadcast");
  return made;
}

std::optional<int32_t> broadcast_rounds(int32_t members, int32_t chunks) {
  if (members == 1) return 0;
  return late_chunks(members, chunks) + doublings(members) - 1;
}

}  // namespace

NamedAlgorithm algorithm_broadcast() {
  AlgorithmCard card;
  card.name = "broadcast";
  card.summary = "every chunk from the root to all, one new chunk a round";
  card.goal = Goal::AllGather;
  card.rounds = "k + L - 1";
  card.bytes = "(k + L - 1) / k s";
  card.phases = "broadcast";
  card.source =
      "the bound: Bar-Noy, Kipnis, Schieber, Optimal multiple message broadcasting in "
      "telephone-like communication systems, 2000; the rounds: decision 38";
  card.good_for = "parameters of one member for all, of any size";
  card.free_chunks = true;
  card.round_count = broadcast_rounds;
  return {std::move(card), broadcast};
}

}  // namespace tenuto
