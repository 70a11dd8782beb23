// Members die in an all-reduce, in every state that it can be in. Plays the completion member by
// member in drawn orders, and counts the contributions in each sum.
#include "collective/complete.h"

#include <gtest/gtest.h>

#include <iostream>

#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/chunk_flow.h"
#include "collective/shapes.h"
#include "sanitized.h"

namespace tenuto {
namespace {
// True when disjoint parts sum up to the survivors, found by trying all combinations.
bool coverable(const std::vector<MemberSet>& parts, const MemberSet& alive, const MemberSet& had,
               size_t from) {
  if (had == alive) return true;
  for (size_t i = from; i < parts.size(); ++i) {
    if (had.meets(parts[i]) || !alive.contains(parts[i])) continue;
    MemberSet with = had;
    with |= parts[i];
    if (coverable(parts, alive, with, i + 1)) return true;
  }
  return false;
}

MemberSet all_but(int32_t members, const std::vector<int32_t>& dead) {
  MemberSet set(members);
  for (int32_t place = 0; place < members; ++place) set.add(place);
  for (const int32_t place : dead) set.remove(place);
  return set;
}

// The state of a group in which members have died.
struct State {
  std::vector<WorkerId> members;
  MemberSet alive;
  std::vector<MemberHolding> holdings;
  std::vector<std::vector<ChunkMemory>> memory;  // [place][chunk]
  int32_t chunks = 0;
  int64_t elements = 0;
  bool filled(int32_t chunk) const {
    return int64_t{chunk} * elements / chunks != (int64_t{chunk} + 1) * elements / chunks;
  }
};

// The contributors that the rules require, found chunk by chunk; empty = no result is possible.
MemberSet due(const State& state) {
  const auto members = static_cast<int32_t>(state.members.size());
  MemberSet everybody = all_but(members, {});
  bool whole = false, split = false, possible = true;
  for (int32_t chunk = 0; chunk < state.chunks; ++chunk) {
    if (!state.filled(chunk)) continue;
    bool here = false;
    std::vector<MemberSet> parts;
    for (int32_t place = 0; place < members; ++place) {
      if (!state.alive.has(place)) continue;
      const MemberHolding& holding = state.holdings[static_cast<size_t>(place)];
      if (holding.ended) return holding.contributors;
      const ChunkHolding& has = holding.chunks[static_cast<size_t>(chunk)];
      here = here || has.total == everybody;
      if (!has.total.empty()) parts.push_back(has.total);
      if (!has.own) continue;
      parts.emplace_back(members);
      parts.back().add(place);
    }
    (here ? whole : split) = true;
    possible = possible && coverable(parts, state.alive, MemberSet(members), 0);
  }
  return whole && !split ? everybody : possible ? state.alive : MemberSet(members);
}

// Expects the outcome that the rules require. A larger sum that also contains dead members is
// accepted, too, if survivors have all of it.
void expect_due(const State& state, const Completion& made) {
  const MemberSet wanted = due(state);
  const auto members = static_cast<int32_t>(state.members.size());
  if (made.contributors == wanted) return;
  EXPECT_NE(wanted, all_but(members, {})) << "all contributions are there";
  EXPECT_TRUE(made.whole && made.contributors.contains(state.alive)) << made.reason;
}

// Completes a state, plays the completion, and checks the sums.
void expect_completed(const State& state, Random& random) {
  const Completion made =
      complete(state.members, state.alive, state.holdings, state.chunks, state.elements);
  expect_due(state, made);
  if (made.contributors.empty()) {
    EXPECT_FALSE(made.reason.empty());
    return;
  }
  CompletionRun execution(made, state.members, state.memory);
  execution.run(random);
  EXPECT_EQ(execution.fault(), "");
  EXPECT_TRUE(execution.over()) << "it stands still";
  if (made.whole) {
    EXPECT_EQ(execution.adds(), 0);
  }
  for (size_t at = 0; at < state.members.size(); ++at) {
    if (!state.alive.has(static_cast<int32_t>(at))) continue;
    for (int32_t chunk = 0; chunk < state.chunks; ++chunk) {
      if (!state.filled(chunk)) continue;
      const auto& sum = execution.sum(at, static_cast<size_t>(chunk));
      ASSERT_EQ(sum.size(), state.members.size()) << "nothing at place " << at;
      for (size_t i = 0; i < sum.size(); ++i) {
        const bool wanted = made.contributors.has(static_cast<int32_t>(i));
        ASSERT_EQ(sum[i], int{wanted}) << "place " << at << " chunk " << chunk << " of " << i;
      }
    }
  }
}

// An all-reduce that can be stopped anywhere.
class Stopped {
 public:
  explicit Stopped(const Procedure& procedure)
      : collective_(procedure.collective), history_(collective_) {
    for (int32_t c = 0; c < collective_.chunk_count; ++c) flows_.emplace_back(collective_, c);
  }
  const ChunkFlow& flow(int32_t chunk) const { return flows_[static_cast<size_t>(chunk)]; }
  int32_t chunks() const { return collective_.chunk_count; }

  // The state with these cuts, by chunk. `keeping`: which members keep their input; 0 = none, 1 =
  // all, 2 = drawn.
  State at(const std::vector<ChunkCut>& cuts, const std::vector<int32_t>& dead, int64_t keeping,
           Random& random) const {
    const auto members = static_cast<int32_t>(collective_.members.size());
    State state{collective_.members, all_but(members, dead), {}, {}, chunks(), chunks()};
    std::vector<bool> keeps(state.members.size());
    for (size_t p = 0; p < keeps.size(); ++p) {
      keeps[p] = keeping == 2 ? random.below(2) == 1 : keeping == 1;
      state.memory.emplace_back(cuts.size());
      state.holdings.emplace_back().chunks.resize(cuts.size());
    }
    for (size_t c = 0; c < cuts.size(); ++c) {
      const auto chunk = static_cast<int32_t>(c);
      const std::vector<ChunkMemory> memory = flow(chunk).play(cuts[c], keeps);
      for (size_t p = 0; p < keeps.size(); ++p) {
        const bool torn = flow(chunk).may_tear(cuts[c], p) && random.below(2) == 1;
        const ChunkHolding before{true, MemberSet(members)};
        state.holdings[p].chunks[c] =
            history_.holding(static_cast<int32_t>(p), chunk, {cuts[c][p], torn}, keeps[p], before);
        state.memory[p][c] = memory[p];
        if (torn) state.memory[p][c].total.clear();
        if (torn && !keeps[p]) state.memory[p][c].own.clear();
      }
    }
    return state;
  }

 private:
  Collective collective_;
  ChunkHistory history_;
  std::vector<ChunkFlow> flows_;
};

std::vector<std::vector<int32_t>> dead_sets(int32_t members) {
  std::vector<std::vector<int32_t>> sets;
  for (int32_t one = 0; one < members; ++one) {
    sets.push_back({one});
    for (int32_t other = one + 1; other < members && members > 2; ++other) {
      sets.push_back({one, other});
    }
  }
  return sets;
}

// Every state of each chunk of small all-reduces, with every choice of one or two dead members. The
// states of the other chunks are drawn.
TEST(Complete, EveryStateOfSmallGroups) {
  int64_t states = 0, completed = 0;
  Random random(11);
  for (const NamedAlgorithm& algorithm : algorithms()) {
    if (algorithm.card.goal != Goal::AllReduce) continue;
    for (int32_t count = 2; count <= (kSanitized ? 4 : 6); ++count) {
      for (const int32_t chunks : {0, 1, 2, count + 1}) {
        if (chunks != 0 && !algorithm.card.free_chunks) continue;
        const auto made =
            make_procedure(algorithm.card.name, shape_for(algorithm.card, count, chunks));
        if (!made.ok()) continue;
        const Stopped stopped(made.value());
        for (int32_t chunk = 0; chunk < stopped.chunks(); ++chunk) {
          std::vector<ChunkCut> cuts = stopped.flow(chunk).all(3000);
          if (cuts.empty()) {
            for (int i = 0; i < 300; ++i) cuts.push_back(stopped.flow(chunk).draw(random));
          }
          states += std::ssize(cuts);
          for (const ChunkCut& cut : cuts) {
            for (const auto& dead : dead_sets(count)) {
              // With many states, try only about 100 for each choice of dead members.
              if (cuts.size() > 100 && random.below(std::ssize(cuts)) > 100) continue;
              std::vector<ChunkCut> all;
              for (int32_t c = 0; c < stopped.chunks(); ++c) {
                all.push_back(c == chunk ? cut : stopped.flow(c).draw(random));
              }
              const int64_t keeping = random.below(3);
              const State state = stopped.at(all, dead, keeping, random);
              SCOPED_TRACE(cat(algorithm.card.name, " n ", count, " k ", chunks, " chunk ", chunk,
                               " dead ", dead.front(), " ", dead.back(), " keeping ", keeping));
              expect_completed(state, random);
              if (testing::Test::HasFailure()) return;
              ++completed;
            }
          }
        }
      }
    }
  }
  std::cout << states << " states of a chunk, " << completed << " completions\n";
}

TEST(Complete, DrawnLargerGroups) {
  const int64_t rounds = kSanitized ? 40 : 400;
  int64_t none = 0, whole = 0;
  for (int64_t seed = 0; seed < rounds; ++seed) {
    Random random(mix(21, static_cast<uint64_t>(seed)));
    const NamedAlgorithm& algorithm =
        algorithms()[static_cast<size_t>(random.below(std::ssize(algorithms())))];
    if (algorithm.card.goal != Goal::AllReduce) continue;
    const auto count = static_cast<int32_t>(5 + random.below(seed % 20 == 0 ? 66 : 20));
    const auto made = make_procedure(
        algorithm.card.name,
        shape_for(algorithm.card, count, static_cast<int32_t>(random.below(2 * count))));
    if (!made.ok()) continue;
    const Stopped stopped(made.value());
    std::vector<ChunkCut> cuts;
    for (int32_t c = 0; c < stopped.chunks(); ++c) cuts.push_back(stopped.flow(c).draw(random));
    std::vector<int32_t> dead;
    for (int64_t left = 1 + random.below(count - 1); left > 0; --left) {
      dead.push_back(static_cast<int32_t>(random.below(count)));
    }
    State state = stopped.at(cuts, dead, random.below(3), random);
    if (random.below(4) == 0) state.elements = random.below(2 * stopped.chunks());
    SCOPED_TRACE(cat("seed ", seed, ": ", algorithm.card.name, " n ", count));
    expect_completed(state, random);
    if (testing::Test::HasFailure()) return;
    const auto made_again =
        complete(state.members, state.alive, state.holdings, state.chunks, state.elements);
    none += made_again.contributors.empty();
    whole += made_again.whole;
  }
  std::cout << rounds << " drawn, " << none << " cannot be had, " << whole << " were there whole\n";
}

// If the late member dies while the others wait for it, the result is the sum that the others have
// already. It only has to be spread: no addition is made.
TEST(Complete, ALateMemberThatNeverComes) {
  Random random(31);
  for (int32_t count = 3; count <= 17; ++count) {
    for (const int32_t chunks : {0, 1, 2, 3, count, 3 * count}) {
      const auto made =
          make_procedure("late-one", shape_for(find_algorithm("late-one")->card, count, chunks));
      ASSERT_TRUE(made.ok());
      const auto& members = made.value().collective.members;
      const auto late = static_cast<int32_t>(
          std::find(members.begin(), members.end(), made.value().late.front()) - members.begin());
      const Collective& moves = made.value().collective;
      // All rounds that need nothing from the late member.
      const auto early = moves.rounds.begin() + made.value().sections.front().round_end;
      Procedure first = made.value();
      first.collective.rounds = {moves.rounds.begin(), early};
      const Stopped stopped(first);
      std::vector<ChunkCut> cuts;
      for (int32_t c = 0; c < moves.chunk_count; ++c) cuts.push_back(stopped.flow(c).all_over());
      for (const int64_t keeping : {0, 1}) {
        SCOPED_TRACE(cat("n ", count, " k ", chunks, " keeping ", keeping));
        const State state = stopped.at(cuts, {late}, keeping, random);
        const auto completion =
            complete(state.members, state.alive, state.holdings, state.chunks, state.elements);
        EXPECT_EQ(completion.contributors, state.alive);
        EXPECT_TRUE(completion.whole);
        for (const Round& round : completion.collective.rounds) {
          for (const Move& move : round.moves) EXPECT_FALSE(move.add);
        }
        expect_completed(state, random);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Members die repeatedly while a completion runs. What each survivor has follows from its progress.
// Some have ended the call already; the result never contradicts theirs.
TEST(Complete, DeathsInCompletions) {
  const uint64_t plays = kSanitized ? 60 : 600;
  int64_t after_end = 0, attempts = 0;
  for (uint64_t seed = 0; seed < plays; ++seed) {
    Random random(mix(41, seed));
    const auto count = static_cast<int32_t>(4 + random.below(9));
    const std::vector<std::string> names{"ring", "halving", "late-one", "tree", "direct"};
    const std::string& name = names[static_cast<size_t>(random.below(std::ssize(names)))];
    const auto made = make_procedure(
        name, shape_for(find_algorithm(name)->card, count, static_cast<int32_t>(random.below(9))));
    ASSERT_TRUE(made.ok());
    const Stopped stopped(made.value());
    std::vector<ChunkCut> cuts;
    for (int32_t c = 0; c < stopped.chunks(); ++c) cuts.push_back(stopped.flow(c).draw(random));
    std::vector<int32_t> dead{static_cast<int32_t>(random.below(count))};
    const int64_t keeping = random.below(2);
    State state = stopped.at(cuts, dead, keeping, random);
    SCOPED_TRACE(cat("seed ", seed, ": ", name, " n ", count, " keeping ", keeping));
    while (true) {
      ++attempts;
      expect_completed(state, random);
      const Completion completion =
          complete(state.members, state.alive, state.holdings, state.chunks, state.elements);
      if (testing::Test::HasFailure()) return;
      if (completion.contributors.empty() || state.alive.count() < 2) break;
      CompletionRun execution(completion, state.members, state.memory);
      execution.run(random, random.below(execution.steps() + 1));
      const ChunkHistory history(completion, state.members, state.holdings);
      State next = state;
      for (int32_t place = 0; place < count; ++place) {
        const auto at = static_cast<size_t>(place);
        if (!state.alive.has(place) || state.holdings[at].ended) continue;
        MemberHolding& holding = next.holdings[at];
        bool all = true;
        for (int32_t c = 0; c < state.chunks; ++c) {
          const auto chunk = static_cast<size_t>(c);
          const int32_t over = execution.over(at, chunk);
          const bool torn = execution.may_tear(at, chunk) && random.below(2) == 1;
          holding.chunks[chunk] = history.holding(place, c, {over, torn}, keeping == 1,
                                                  state.holdings[at].chunks[chunk]);
          all = all && over == history.length(place, c);
          ChunkMemory& memory = next.memory[at][chunk];
          if (!execution.received(at, chunk) && !torn) continue;
          memory.total = torn ? ContributorCounts{} : execution.sum(at, chunk);
          if (keeping == 0) memory.own.clear();
        }
        if (!all || random.below(2) == 0) continue;
        holding.ended = true;
        holding.contributors = completion.contributors;
        for (int32_t c = 0; c < state.chunks; ++c) {
          next.memory[at][static_cast<size_t>(c)].total = execution.sum(at, static_cast<size_t>(c));
        }
        ++after_end;
      }
      int32_t victim = static_cast<int32_t>(random.below(count));
      while (!state.alive.has(victim)) victim = (victim + 1) % count;
      next.alive.remove(victim);
      state = std::move(next);
    }
  }
  std::cout << attempts << " attempts, " << after_end << " ends\n";
}

// A member has ended with a sum; a sum over more members is there too, but must not be used.
TEST(Complete, AnEndedMembersResultIsKept) {
  const std::vector<WorkerId> members{{0}, {1}, {2}, {3}, {4}, {5}};
  std::vector<MemberHolding> holdings(6);
  holdings[0].ended = true;
  holdings[0].contributors = all_but(6, {3, 4, 5});
  holdings[2].chunks = {{true, all_but(6, {1})}};
  const Completion made = complete(members, all_but(6, {1, 3, 4, 5}), holdings, 1, 1);
  EXPECT_EQ(made.contributors, all_but(6, {3, 4, 5}));
  EXPECT_TRUE(made.whole);
}

TEST(Complete, ContradictingResultsAreDetected) {
  const std::vector<WorkerId> members{{0}, {1}, {2}};
  std::vector<MemberHolding> holdings(3);
  for (const size_t at : {0, 1}) {
    holdings[at].ended = true;
    holdings[at].contributors =
        all_but(3, at == 0 ? std::vector<int32_t>{} : std::vector<int32_t>{2});
  }
  const Completion made = complete(members, all_but(3, {2}), holdings, 1, 1);
  EXPECT_TRUE(made.contributors.empty());
  EXPECT_EQ(made.reason, "members have completed the call with different sums");
}

}  // namespace
}  // namespace tenuto
