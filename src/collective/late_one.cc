// All-reduce with late members that come one after the other; the exchange is with the last one.
//
// Idea:   the others make their sums while they wait, so each chunk lacks only one contribution;
//         when the last member comes, one exchange a round completes a chunk (late_rounds.h). A
//         late member that comes before the last gives each chunk's owner its part, and takes over
//         the chunks that it is to own, as if it had been there from the beginning.
// Rounds: k + L - 1 after the last one has come.
// Source: the same as late_rounds.h.
#include <algorithm>
#include <map>

#include "base/contains.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/late.h"
#include "collective/late_rounds.h"

namespace tenuto {

namespace {

// The rounds in which `joiner` joins the members that hold the sums: it sends a message to each of
// them, and gets one from each that kept a chunk for it. `holders`, by chunk, is then updated.
std::vector<Round> joining_rounds(WorkerId joiner, const std::vector<WorkerId>& owners,
                                  std::vector<WorkerId>& holders) {
  std::map<WorkerId, std::vector<Move>> out, in;
  for (size_t c = 0; c < owners.size(); ++c) {
    const ChunkId chunk{static_cast<int32_t>(c)};
    if (owners[c] == joiner) {
      in[holders[c]].push_back({holders[c], joiner, chunk, true});
      holders[c] = joiner;
    } else {
      out[holders[c]].push_back({joiner, holders[c], chunk, true});
    }
  }
  std::vector<Round> rounds(std::max(out.size(), in.size()));
  for (const auto* side : {&out, &in}) {
    size_t r = 0;
    for (const auto& [peer, moves] : *side) {
      auto& all = rounds[r++].moves;
      all.insert(all.end(), moves.begin(), moves.end());
    }
  }
  return rounds;
}

Result<Procedure> make(const CollectiveShape& shape, std::string name) {
  const auto count = static_cast<int32_t>(shape.members.size());
  const WorkerId last = shape.late.back();
  const std::vector<WorkerId> others = without(shape.members, {last});
  const int32_t chunks = late_chunks(count, shape.chunks > 0 ? shape.chunks : count - 1);
  auto exchange = late_rounds(count, chunks);
  if (!exchange.ok()) return exchange.error();
  Procedure made;
  made.name = std::move(name);
  made.late = shape.late;
  made.collective = {shape.members, chunks, {}};
  for (const int32_t place : exchange.value().owners) {
    made.owners.push_back(others[static_cast<size_t>(place)]);
  }
  const std::vector<WorkerId> early = without(shape.members, shape.late);
  std::vector<WorkerId> holders = made.owners;
  for (size_t c = 0; c < holders.size(); ++c) {
    const bool present = contains(early, holders[c]);
    if (!present) holders[c] = early[c % early.size()];
  }
  append(made, early_rounds(early, holders), "early reduce-scatter");
  for (size_t i = 0; i + 1 < shape.late.size(); ++i) {
    append(made, joining_rounds(shape.late[i], made.owners, holders), cat("join ", shape.late[i]));
  }
  append(made, rounds_among(std::move(exchange).value(), others, last), "late exchange");
  return made;
}

Result<Procedure> late_one(const CollectiveShape& shape) { return make(shape, "late-one"); }
Result<Procedure> late_join(const CollectiveShape& shape) { return make(shape, "late-join"); }

std::optional<int32_t> late_round_count(int32_t members, int32_t chunks) {
  return exchange_rounds(members, late_chunks(members, chunks));
}

constexpr const char* kSource =
    "Devraj et al., Efficient AllReduce with Stragglers, arXiv 2505.23523; rounds for every n and "
    "free k: decision 38";

}  // namespace

NamedAlgorithm algorithm_late_one() {
  AlgorithmCard card;
  card.name = "late-one";
  card.summary = "the others sum up while one member is late, and share when it comes";
  card.rounds =
      "k + L - 1 after the late one has come; n - 2 before (k < n - 1: ceil(log2 (n - 1)))";
  card.bytes = "(k + L - 1) / k s after the late one has come; about s before";
  card.phases = "early reduce-scatter, late exchange";
  card.source = kSource;
  card.good_for = "a member that is late by more than the break-even delay, call after call";
  card.free_chunks = true;
  card.late_least = card.late_most = 1;
  card.round_count = late_round_count;
  return {std::move(card), late_one};
}

NamedAlgorithm algorithm_late_join() {
  AlgorithmCard card;
  card.name = "late-join";
  card.summary = "as late-one; who comes before the last one joins those who have summed up";
  card.rounds = "k + L - 1 after the last one has come; n - 2 at most for each who joins";
  card.bytes = "(k + L - 1) / k s after the last one has come; s for each who joins";
  card.phases = "early reduce-scatter, join for each but the last, late exchange";
  card.source = kSource;
  card.good_for = "several members that come late one after the other";
  card.free_chunks = true;
  card.late_least = 1;
  card.late_most = -1;
  card.round_count = late_round_count;
  return {std::move(card), late_join};
}

}  // namespace tenuto
