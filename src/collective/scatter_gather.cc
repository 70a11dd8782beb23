// Ring, halving and direct, and their halves: reduce-scatter and all-gather with one chunk a
// member.
#include "collective/algorithm.h"
#include "collective/circulant.h"
#include "collective/ring.h"

namespace tenuto {

namespace {

using Rounds = std::vector<Round> (*)(const std::vector<WorkerId>&, const Blocks&);

// Each member owns the chunk of its place.
Procedure with_own_chunks(const CollectiveShape& shape, std::string name, Goal goal) {
  Procedure made;
  made.name = std::move(name);
  made.goal = goal;
  made.owners = shape.members;
  made.collective = {shape.members, static_cast<int32_t>(shape.members.size()), {}};
  return made;
}

Procedure all_reduce_of(const CollectiveShape& shape, std::string name, Rounds scatter,
                        Rounds gather) {
  Procedure made = with_own_chunks(shape, std::move(name), Goal::AllReduce);
  const Blocks blocks = one_chunk_each(shape.members.size());
  append(made, scatter(shape.members, blocks), "reduce-scatter");
  append(made, gather(shape.members, blocks), "all-gather");
  return made;
}

Result<Procedure> ring(const CollectiveShape& shape) {
  Procedure made = with_own_chunks(shape, "ring", Goal::AllReduce);
  made.collective = make_ring(shape.members);
  // In the ring the sum of chunk c is complete at the member before c.
  for (size_t c = 0; c < shape.members.size(); ++c) {
    made.owners[c] = shape.members[(c + shape.members.size() - 1) % shape.members.size()];
  }
  const auto rounds = static_cast<int32_t>(made.collective.rounds.size());
  if (rounds > 0) made.sections = {{"reduce-scatter", rounds / 2}, {"all-gather", rounds}};
  return made;
}

Result<Procedure> halving(const CollectiveShape& shape) {
  return all_reduce_of(shape, "halving", circulant_reduce_scatter, circulant_all_gather);
}

// In round j each member sends to the one j + 1 places ahead, so that no port has two messages.
std::vector<Round> direct_scatter(const std::vector<WorkerId>& members, const Blocks& blocks) {
  std::vector<Round> rounds;
  for (size_t step = 1; step < members.size(); ++step) {
    Round& round = rounds.emplace_back();
    for (size_t i = 0; i < members.size(); ++i) {
      const size_t to = (i + step) % members.size();
      for (const ChunkId chunk : blocks[to]) {
        round.moves.push_back({members[i], members[to], chunk, true});
      }
    }
  }
  return rounds;
}

std::vector<Round> direct_gather(const std::vector<WorkerId>& members, const Blocks& blocks) {
  std::vector<Round> rounds;
  for (size_t step = 1; step < members.size(); ++step) {
    Round& round = rounds.emplace_back();
    for (size_t i = 0; i < members.size(); ++i) {
      for (const ChunkId chunk : blocks[i]) {
        round.moves.push_back({members[i], members[(i + step) % members.size()], chunk, false});
      }
    }
  }
  return rounds;
}

Result<Procedure> direct(const CollectiveShape& shape) {
  return all_reduce_of(shape, "direct", direct_scatter, direct_gather);
}

template <Rounds rounds, Goal goal>
Result<Procedure> half(const CollectiveShape& shape, std::string name) {
  Procedure made = with_own_chunks(shape, std::move(name), goal);
  append(made, rounds(shape.members, one_chunk_each(shape.members.size())),
         goal == Goal::ReduceScatter ? "reduce-scatter" : "all-gather");
  return made;
}

Result<Procedure> scatter_ring(const CollectiveShape& shape) {
  return half<ring_reduce_scatter, Goal::ReduceScatter>(shape, "reduce-scatter-ring");
}
Result<Procedure> scatter_halving(const CollectiveShape& shape) {
  return half<circulant_reduce_scatter, Goal::ReduceScatter>(shape, "reduce-scatter-halving");
}
Result<Procedure> gather_ring(const CollectiveShape& shape) {
  return half<ring_all_gather, Goal::AllGather>(shape, "all-gather-ring");
}
Result<Procedure> gather_doubling(const CollectiveShape& shape) {
  return half<circulant_all_gather, Goal::AllGather>(shape, "all-gather-doubling");
}

constexpr const char* kRingSource =
    "Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC "
    "2009";
constexpr const char* kCirculantSource =
    "Traff, Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2410.14234; for "
    "n = 2^L as Thakur, Rabenseifner, Gropp, IJHPCA 2005";

std::optional<int32_t> once_each(int32_t members, int32_t) { return members - 1; }
std::optional<int32_t> twice_each(int32_t members, int32_t) { return 2 * (members - 1); }
std::optional<int32_t> once_doubled(int32_t members, int32_t) { return doublings(members); }
std::optional<int32_t> twice_doubled(int32_t members, int32_t) { return 2 * doublings(members); }

}  // namespace

NamedAlgorithm algorithm_ring() {
  AlgorithmCard card;
  card.name = "ring";
  card.summary = "sums travel round a ring and grow, then the finished sums travel";
  card.rounds = "2 (n - 1)";
  card.bytes = "2 (n - 1) / n s";
  card.phases = "reduce-scatter, all-gather";
  card.source = kRingSource;
  card.good_for = "large tensors, and networks on which neighbours only should talk";
  card.round_count = twice_each;
  return {std::move(card), ring};
}

NamedAlgorithm algorithm_halving() {
  AlgorithmCard card;
  card.name = "halving";
  card.summary = "distances and blocks halve while sums are made, and double while they spread";
  card.rounds = "2 L";
  card.bytes = "2 (n - 1) / n s";
  card.phases = "reduce-scatter, all-gather";
  card.source = kCirculantSource;
  card.good_for = "small tensors and many members, any count of them";
  card.round_count = twice_doubled;
  return {std::move(card), halving};
}

NamedAlgorithm algorithm_direct() {
  AlgorithmCard card;
  card.name = "direct";
  card.summary = "each member sums its own chunk from all others, and sends it to all";
  card.rounds = "2 (n - 1), or 2 where a port takes n - 1 messages at once";
  card.bytes = "2 (n - 1) / n s";
  card.phases = "reduce-scatter, all-gather";
  card.source = "all-to-all, the textbook's";
  card.good_for = "few members behind one switch: no sum waits for more than one hop";
  card.round_count = twice_each;
  return {std::move(card), direct};
}

NamedAlgorithm algorithm_reduce_scatter_ring() {
  AlgorithmCard card;
  card.name = "reduce-scatter-ring";
  card.summary = "the first half of ring: member i ends with the sum of chunk i";
  card.goal = Goal::ReduceScatter;
  card.rounds = "n - 1";
  card.bytes = "(n - 1) / n s";
  card.phases = "reduce-scatter";
  card.source = kRingSource;
  card.good_for = "sharded gradients, large";
  card.round_count = once_each;
  return {std::move(card), scatter_ring};
}

NamedAlgorithm algorithm_reduce_scatter_halving() {
  AlgorithmCard card;
  card.name = "reduce-scatter-halving";
  card.summary = "the first half of halving: member i ends with the sum of chunk i";
  card.goal = Goal::ReduceScatter;
  card.rounds = "L";
  card.bytes = "(n - 1) / n s";
  card.phases = "reduce-scatter";
  card.source = kCirculantSource;
  card.good_for = "sharded gradients, small";
  card.round_count = once_doubled;
  return {std::move(card), scatter_halving};
}

NamedAlgorithm algorithm_all_gather_ring() {
  AlgorithmCard card;
  card.name = "all-gather-ring";
  card.summary = "the second half of ring: all end with chunk i of member i";
  card.goal = Goal::AllGather;
  card.rounds = "n - 1";
  card.bytes = "(n - 1) / n s";
  card.phases = "all-gather";
  card.source = kRingSource;
  card.good_for = "sharded parameters, large";
  card.round_count = once_each;
  return {std::move(card), gather_ring};
}

NamedAlgorithm algorithm_all_gather_doubling() {
  AlgorithmCard card;
  card.name = "all-gather-doubling";
  card.summary = "the second half of halving: all end with chunk i of member i";
  card.goal = Goal::AllGather;
  card.rounds = "L";
  card.bytes = "(n - 1) / n s";
  card.phases = "all-gather";
  card.source = kCirculantSource;
  card.good_for = "sharded parameters, small";
  card.round_count = once_doubled;
  return {std::move(card), gather_doubling};
}

}  // namespace tenuto
