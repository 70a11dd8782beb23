// The double binary tree all-reduce.
//
// Idea:   two trees over all members, each for every second chunk. An inner member of one tree is a
//         leaf of the other, so that all ports are busy. Chunks follow each other up and down.
// Rounds: about 3 L until the first chunk is everywhere, then 2.5 a chunk.
// Bytes:  2 s through a member, and idle rounds in which half a tensor could move.
// Source: Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//         scan", Parallel Computing 2009; the tree is NCCL's.
// Not taken: colouring the edges so that each round is exactly full: the trees would have to be
//         chosen together with the colours. Taking the first free rounds loses a fifth.
#include <algorithm>

#include "collective/algorithm.h"
#include "collective/pack.h"

namespace tenuto {

namespace {

// The parent of a place: a neighbouring place with more factors of two. 0 is the root, odd places
// are leaves.
int32_t parent_of(int32_t place, int32_t count) {
  const int32_t bit = place & -place;
  const int32_t parent = (place ^ bit) | (bit << 1);
  return parent < count ? parent : place ^ bit;
}

struct Edge {
  int32_t depth = 0;  // of the child; 1 below the root
  WorkerId parent, child;
};

// A tree as its edges, each parent's edge before those of its children.
std::vector<Edge> edges(const std::vector<WorkerId>& members) {
  const auto count = static_cast<int32_t>(members.size());
  std::vector<Edge> all;
  for (int32_t place = 1; place < count; ++place) {
    int32_t depth = 0;
    for (int32_t up = place; up != 0; up = parent_of(up, count)) ++depth;
    all.push_back({depth, members[static_cast<size_t>(parent_of(place, count))],
                   members[static_cast<size_t>(place)]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Edge& left, const Edge& right) { return left.depth < right.depth; });
  return all;
}

Result<Procedure> tree(const CollectiveShape& shape) {
  const auto count = static_cast<int32_t>(shape.members.size());
  // The leaves of the second tree are the places that are no leaves of the first one.
  std::vector<WorkerId> other = shape.members;
  if (count % 2 == 0) {
    std::reverse(other.begin(), other.end());
  } else {
    std::rotate(other.begin(), other.begin() + 1, other.end());
  }
  const std::vector<Edge> trees[] = {edges(shape.members), edges(other)};
  Procedure made;
  made.name = "tree";
  const int32_t chunks = shape.chunks > 0 ? shape.chunks : 4 * std::max(doublings(count), 1);
  made.collective = {shape.members, chunks, {}};
  if (count == 1) return made;
  // Sorts the moves by when they would be made if ports were unlimited: each level of a tree takes
  // two rounds, and each chunk begins two rounds after the chunk before it.
  struct Timed {
    int32_t time;
    Move move;
  };
  std::vector<Timed> moves;
  const int32_t depth = std::max(trees[0].back().depth, trees[1].back().depth);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    made.owners.push_back(chunk % 2 == 0 ? shape.members[0] : other[0]);
    for (const Edge& edge : trees[chunk % 2]) {
      const int32_t start = 2 * (chunk + depth);
      moves.push_back({start - 2 * edge.depth, {edge.child, edge.parent, {chunk}, true}});
      moves.push_back({start + 2 * edge.depth, {edge.parent, edge.child, {chunk}, false}});
    }
  }
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Timed& left, const Timed& right) { return left.time < right.time; });
  std::vector<Move> sorted;
  for (const Timed& timed : moves) sorted.push_back(timed.move);
  made.collective.rounds = pack_rounds(sorted, chunks);
  made.sections = {{"up and down", static_cast<int32_t>(made.collective.rounds.size())}};
  return made;
}

}  // namespace

NamedAlgorithm algorithm_tree() {
  AlgorithmCard card;
  card.name = "tree";
  card.summary = "two binary trees, each for every other chunk: up to the root and down again";
  card.rounds = "about 3 L + 2.5 k";
  card.bytes = "about 2.5 s through the busiest port, as the chunks get many";
  card.phases = "up and down, overlapped";
  card.source =
      "Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and "
      "scan, Parallel Computing 2009";
  card.good_for = "many members whose links differ in nothing, tensors of middle size";
  card.free_chunks = true;
  return {std::move(card), tree};
}

}  // namespace tenuto
