// All-reduce with one member whose links are slow, in both directions.
//
// Idea:   the slow member sends the tensor once and receives it once; in a ring every member does
//         both nearly twice. First the others make the sums of a few chunks, one for each of
//         them. Then, in each round, the slow member exchanges one chunk with its owner, as in
//         late-one, while each of the others moves two: a whole chunk of this pass, and a part of a
//         sum for the next pass.
// Parts:  in a pass each of the others meets the slow one once, and in that round it moves nothing
//         else. The rest swap parts of sums. An idempotent Latin square gives the round in which
//         one member sends to another: a table of members by members in which every row and column
//         has each round once, and each member's own round on the diagonal. So no port waits for
//         another.
// Bytes:  about s in each direction through the slow member's ports, and 2 s through all others.
// Source: docs/decisions/040. The bound for one slow member: Chen et al., arXiv 2606.01680.
// Not taken: sums of the next pass along a ring; it moves as much, but one member that meets the
//         slow one holds up all others in each round: 9 to 24 % more for 256 MiB.
#include <algorithm>

#include "base/contains.h"
#include "collective/algorithm.h"
#include "collective/circulant.h"
#include "collective/late.h"

namespace tenuto {

namespace {

// Chunks [first, end), each with an owner of its own.
struct Pass {
  size_t first = 0, end = 0;
};

// Divides the chunks into passes, from the last chunk back: a pass has no owner twice.
std::vector<Pass> passes_of(const std::vector<WorkerId>& owners) {
  std::vector<Pass> passes;
  size_t end = owners.size();
  std::vector<WorkerId> met;
  for (size_t c = owners.size(); c-- > 0;) {
    if (contains(met, owners[c])) {
      passes.push_back({c + 1, end});
      end = c + 1;
      met.clear();
    }
    met.push_back(owners[c]);
  }
  passes.push_back({0, end});
  std::reverse(passes.begin(), passes.end());
  return passes;
}

// An entry of the idempotent Latin square of an odd order: half way between row and column.
size_t half_way(size_t row, size_t column, size_t order) {
  const size_t sum = row + column;
  return (sum % 2 == 0 ? sum / 2 : (sum + order) / 2) % order;
}

// The round in which member `row` sends to member `column`. An even order is the odd one below it,
// with the entries beside the diagonal moved out into a new row and column. Requires order >= 3
size_t swap_round(size_t row, size_t column, size_t order) {
  if (order % 2 == 1) return half_way(row, column, order);
  const size_t last = order - 1;
  if (row == last && column == last) return last;
  if (column == last) return half_way(row, (row + 1) % last, last);
  if (row == last) return half_way((column + last - 1) % last, column, last);
  return column == (row + 1) % last ? last : half_way(row, column, last);
}

// The rounds in which `others` make the sums of the chunks of `pass`. In round i the i-th owner of
// `now` meets the slow member; rounds without a meeting come last.
std::vector<Round> swaps(const Pass& pass, const Pass& now, const std::vector<WorkerId>& owners,
                         const std::vector<WorkerId>& others) {
  std::vector<WorkerId> order(owners.begin() + static_cast<std::ptrdiff_t>(now.first),
                              owners.begin() + static_cast<std::ptrdiff_t>(now.end));
  for (const WorkerId other : others) {
    if (!contains(order, other)) order.push_back(other);
  }
  std::vector<Round> rounds(order.size());
  for (size_t c = pass.first; c < pass.end; ++c) {
    const auto column =
        static_cast<size_t>(std::find(order.begin(), order.end(), owners[c]) - order.begin());
    for (size_t row = 0; row < order.size(); ++row) {
      if (row == column) continue;
      rounds[swap_round(row, column, order.size())].moves.push_back(
          {order[row], order[column], {static_cast<int32_t>(c)}, true});
    }
  }
  return rounds;
}

// The sums of the first pass, in few rounds.
std::vector<Round> first_sums(const Pass& pass, const std::vector<WorkerId>& owners,
                              const std::vector<WorkerId>& others) {
  if (pass.end < others.size()) {
    return early_rounds(others, {owners.begin(), owners.begin() + static_cast<int64_t>(pass.end)});
  }
  Blocks blocks(others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    for (size_t c = 0; c < pass.end; ++c) {
      if (owners[c] == others[i]) blocks[i].push_back({static_cast<int32_t>(c)});
    }
  }
  return circulant_reduce_scatter(others, blocks);
}

Result<Procedure> slow_one(const CollectiveShape& shape) {
  const auto count = static_cast<int32_t>(shape.members.size());
  const std::vector<WorkerId> others = without(shape.members, shape.late);
  const int32_t asked = shape.chunks > 0 ? shape.chunks : 4 * (count - 1);
  const int32_t chunks = late_chunks(count, asked);
  auto exchange = late_rounds(count, chunks);
  if (!exchange.ok()) return exchange.error();
  Procedure made;
  made.name = "slow-one";
  made.late = shape.late;
  made.collective = {shape.members, chunks, {}};
  for (const int32_t place : exchange.value().owners) {
    made.owners.push_back(others[static_cast<size_t>(place)]);
  }
  std::vector<Round> met = rounds_among(std::move(exchange).value(), others, shape.late.front());
  // With two others, one has no partner for swaps while the other meets the slow one.
  if (others.size() < 3) {
    append(made, early_rounds(others, made.owners), "first sums");
    append(made, std::move(met), "exchange");
    return made;
  }
  const std::vector<Pass> passes = passes_of(made.owners);
  append(made, first_sums(passes.front(), made.owners, others), "first sums");
  std::vector<Round> rounds;
  for (size_t p = 0; p < passes.size(); ++p) {
    std::vector<Round> parts;
    if (p + 1 < passes.size()) parts = swaps(passes[p + 1], passes[p], made.owners, others);
    const size_t met_end = p + 1 < passes.size() ? passes[p].end : met.size();
    size_t part = 0;
    for (size_t t = passes[p].first; t < met_end; ++t) {
      rounds.push_back(std::move(met[t]));
      if (part < parts.size()) rounds.push_back(std::move(parts[part++]));
    }
    for (; part < parts.size(); ++part) rounds.push_back(std::move(parts[part]));
  }
  std::erase_if(rounds, [](const Round& round) { return round.moves.empty(); });
  append(made, std::move(rounds), "exchange");
  return made;
}

}  // namespace

NamedAlgorithm algorithm_slow_one() {
  AlgorithmCard card;
  card.name = "slow-one";
  card.summary = "one member has slow links: the tensor goes once through them, each way";
  card.rounds = "about 2 k + 2 L";
  card.bytes = "(k + L - 1) / k s through the slow links, about 2 s through all others";
  card.phases = "first sums, exchange with the next sums between its rounds";
  card.source = "decision 40; the bound: Chen et al., arXiv 2606.01680";
  card.good_for = "large tensors where one member has about half of the others' bandwidth";
  card.free_chunks = true;
  card.late_least = card.late_most = 1;
  return {std::move(card), slow_one};
}

}  // namespace tenuto
