// All-reduce with several late members that come at about the same time.
//
// Idea:   the others sum up while they wait. Late member i gives its part of chunk c to the chunk's
//         owner in round c + i; the last of them takes the sum back in that round. Whole chunks
//         spread meanwhile, the rarest first, by whatever ports are free.
// Rounds: for k chunks about k (n + w - 1) / n and L more at best, w late members; the greedy
//         choice takes 10 to 15 % more.
// Source: docs/decisions/038.
// Not taken: the exact matching of free ports in each round; it saves rounds only at the end, where
//         the rarest chunk decides.
#include <algorithm>
#include <numeric>

#include "collective/algorithm.h"
#include "collective/late.h"

namespace tenuto {

namespace {

class Together {
 public:
  Together(std::vector<WorkerId> early, std::vector<WorkerId> late, int32_t chunks)
      : members_(std::move(early)), early_count_(members_.size()), late_count_(late.size()) {
    members_.insert(members_.end(), late.begin(), late.end());
    holders_.assign(static_cast<size_t>(chunks), {});
    has_.assign(static_cast<size_t>(chunks), std::vector<bool>(members_.size(), false));
    lacks_.assign(members_.size(), chunks);
  }

  std::vector<Round> make() {
    std::vector<Round> rounds;
    while (std::any_of(lacks_.begin(), lacks_.end(), [](int32_t lacks) { return lacks > 0; })) {
      rounds.push_back(play(rounds.size()));
    }
    return rounds;
  }

 private:
  size_t owner_of(size_t chunk) const { return chunk % early_count_; }

  void send(Round& round, size_t from, size_t to, size_t chunk, bool add) {
    out_busy_[from] = in_busy_[to] = true;
    round.moves.push_back({members_[from], members_[to], {static_cast<int32_t>(chunk)}, add});
  }
  void become_whole(size_t member, size_t chunk) { arrived_.push_back({member, chunk}); }

  Round play(size_t t) {
    Round round;
    out_busy_.assign(members_.size(), false);
    in_busy_ = out_busy_;
    for (size_t i = 0; i < late_count_ && i <= t; ++i) {
      // A late member sends each owner one chunk a turn, and an owner takes one part a round. So a
      // turn has as many rounds as there are owners or late members, whichever are more.
      const size_t turn = std::max(early_count_, late_count_);
      const size_t begun = t - i, late = early_count_ + i;
      const size_t chunk = begun / turn * early_count_ + begun % turn;
      if (begun % turn >= early_count_ || chunk >= holders_.size()) continue;
      send(round, late, owner_of(chunk), chunk, true);
      if (i + 1 < late_count_) continue;
      send(round, owner_of(chunk), late, chunk, true);
      become_whole(late, chunk);
      become_whole(owner_of(chunk), chunk);
    }
    spread(round);
    for (const auto& [member, chunk] : arrived_) {
      has_[chunk][member] = true;
      holders_[chunk].push_back(member);
      --lacks_[member];
    }
    arrived_.clear();
    return round;
  }

  // The rarest chunks first; a chunk goes to the member that lacks most chunks.
  void spread(Round& round) {
    std::vector<size_t> rare;
    for (size_t c = 0; c < holders_.size(); ++c) {
      if (!holders_[c].empty() && holders_[c].size() < members_.size()) rare.push_back(c);
    }
    std::stable_sort(rare.begin(), rare.end(), [&](size_t left, size_t right) {
      return holders_[left].size() < holders_[right].size();
    });
    std::vector<size_t> needy(members_.size());
    std::iota(needy.begin(), needy.end(), size_t{0});
    std::stable_sort(needy.begin(), needy.end(),
                     [&](size_t left, size_t right) { return lacks_[left] > lacks_[right]; });
    for (const size_t chunk : rare) {
      auto next = needy.begin();
      for (const size_t holder : holders_[chunk]) {
        if (out_busy_[holder]) continue;
        next = std::find_if(next, needy.end(), [&](size_t member) {
          return !in_busy_[member] && !has_[chunk][member];
        });
        if (next == needy.end()) break;
        send(round, holder, *next, chunk, false);
        become_whole(*next, chunk);
      }
    }
  }

  std::vector<WorkerId> members_;  // the early ones first
  const size_t early_count_, late_count_;
  std::vector<std::vector<size_t>> holders_;  // [chunk] who has it whole
  std::vector<std::vector<bool>> has_;        // [chunk][member]
  std::vector<int32_t> lacks_;                // [member]
  std::vector<bool> out_busy_, in_busy_;
  std::vector<std::pair<size_t, size_t>> arrived_;  // member, chunk
};

Result<Procedure> late_together(const CollectiveShape& shape) {
  const std::vector<WorkerId> early = without(shape.members, shape.late);
  const auto most = static_cast<int32_t>(early.size());
  const int32_t chunks = shape.chunks > 0 ? shape.chunks : 4 * most;
  Procedure made;
  made.name = "late-together";
  made.late = shape.late;
  made.collective = {shape.members, chunks, {}};
  for (int32_t c = 0; c < chunks; ++c) made.owners.push_back(early[static_cast<size_t>(c % most)]);
  append(made, early_rounds(early, made.owners), "early reduce-scatter");
  append(made, Together(early, shape.late, chunks).make(), "late exchange");
  return made;
}

}  // namespace

NamedAlgorithm algorithm_late_together() {
  AlgorithmCard card;
  card.name = "late-together";
  card.summary = "the others sum up, and share with several late members that come together";
  card.rounds = "about k (n + w - 1) / n + L after the late ones have come";
  card.bytes = "about (n + w - 1) / n s after the late ones have come; about s before";
  card.phases = "early reduce-scatter, late exchange";
  card.source = "decision 38";
  card.good_for = "up to a quarter of the members late by the same delay";
  card.free_chunks = true;
  card.late_least = 1;
  card.late_most = -1;
  return {std::move(card), late_together};
}

}  // namespace tenuto
