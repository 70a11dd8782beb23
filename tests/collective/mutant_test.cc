// Each damaged procedure is refused; the seed determines which one is damaged and how.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/shapes.h"
#include "ir/check.h"
#include "ir/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

struct Mutant {
  Procedure procedure;
  std::string damage;
};

class Damage {
 public:
  Damage(Procedure procedure, Random& random) : mutant_{std::move(procedure), ""}, random_(random) {
    auto& rounds = collective().rounds;
    do {
      round_ = pick(rounds.size());
    } while (rounds[round_].moves.empty());
    index_ = pick(rounds[round_].moves.size());
  }

  // Damages the move in a way that is drawn: a chunk is then missing somewhere, or a rule of
  // procedures is broken. Returns nothing if this move cannot be damaged in this way.
  std::optional<Mutant> draw() {
    const int64_t kind = random_.below(9);
    auto& rounds = collective().rounds;
    auto& moves = rounds[round_].moves;
    const Move old = moves[index_];
    const std::string at = cat("round ", round_, " ", to_text(old));
    switch (kind) {
      case 0:
        moves.erase(moves.begin() + static_cast<std::ptrdiff_t>(index_));
        return done(cat("lost ", at));
      case 1:
        rounds.push_back({{old}});
        return done(cat("again in the end ", at));
      case 2:
        moves[index_].add = !old.add;
        return done(cat("add turned round ", at));
      case 3:
        if (old.add) return {};  // the new receiver may pass it on
        moves[index_].to = another(old.to);
        return moves[index_].to == old.from ? std::nullopt : done(cat("to another ", at));
      case 4: {
        if (collective().chunk_count == 1) return {};
        const auto shift = 1 + random_.below(collective().chunk_count - 1);
        moves[index_].chunk.value =
            static_cast<int32_t>((old.chunk.value + shift) % collective().chunk_count);
        return done(cat("another chunk ", at));
      }
      case 5:
        rounds.erase(rounds.begin() + static_cast<std::ptrdiff_t>(round_));
        return done(cat("lost round ", round_));
      case 6:
        moves[index_].from = another(old.from);
        if (!sends_twice(moves[index_])) return {};
        return done(cat("from one that sends already ", at));
      case 7:
        return doubled(old, at);
      default:
        return earlier(old, at);
    }
  }

 private:
  Collective& collective() { return mutant_.procedure.collective; }
  size_t pick(size_t count) {
    return static_cast<size_t>(random_.below(static_cast<int64_t>(count)));
  }
  std::optional<Mutant> done(std::string damage) {
    mutant_.damage = std::move(damage);
    return mutant_;
  }
  WorkerId another(WorkerId than) {
    const auto& members = collective().members;
    WorkerId found = than;
    while (found == than) found = members[pick(members.size())];
    return found;
  }
  bool sends_twice(const Move& changed) {
    if (changed.from == changed.to) return true;
    for (const Move& move : collective().rounds[round_].moves) {
      if (move.from == changed.from && move.to != changed.to) return true;
    }
    return false;
  }
  // Repeats the move in another round.
  std::optional<Mutant> doubled(const Move& old, const std::string& at) {
    const size_t other = pick(collective().rounds.size());
    collective().rounds[other].moves.push_back(old);
    return done(cat("again in round ", other, " ", at));
  }
  // Moves the move to a round before its sender has the chunk: no later than the round in which the
  // sender last receives it.
  std::optional<Mutant> earlier(const Move& old, const std::string& at) {
    if (old.add || round_ == 0) return {};
    auto& rounds = collective().rounds;
    std::optional<size_t> got;
    for (size_t r = 0; r < round_; ++r) {
      for (const Move& move : rounds[r].moves) {
        if (move.to == old.from && move.chunk == old.chunk) got = r;
      }
    }
    if (!got) return {};
    const size_t target = pick(*got + 1);
    rounds[round_].moves.erase(rounds[round_].moves.begin() + static_cast<std::ptrdiff_t>(index_));
    rounds[target].moves.push_back(old);
    return done(cat("in round ", target, " instead ", at));
  }

  Mutant mutant_;
  Random& random_;
  size_t round_ = 0, index_ = 0;
};

TEST(Mutants, AllAreRefused) {
  const int wanted = kSanitized ? 300 : 4000;
  std::map<std::string, int> kinds;
  int drawn = 0;
  for (uint64_t seed = 1; drawn < wanted; ++seed) {
    Random random(seed);
    const auto& all = algorithms();
    // Every second procedure is made by late-one, the others by any algorithm.
    const AlgorithmCard& card =
        seed % 2 == 0
            ? find_algorithm("late-one")->card
            : all[static_cast<size_t>(random.below(static_cast<int64_t>(all.size())))].card;
    const auto count = static_cast<int32_t>(3 + random.below(22));
    const auto chunks = static_cast<int32_t>(1 + random.below(3 * count));
    const auto made = make_procedure(card.name, shape_for(card, count, chunks));
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(check(made.value()).ok());
    const auto mutant = Damage(made.value(), random).draw();
    if (!mutant) continue;
    ++drawn;
    ++kinds[mutant->damage.substr(0, mutant->damage.find(' '))];
    EXPECT_FALSE(check(mutant->procedure).ok())
        << "seed " << seed << ", " << card.name << " n " << count << " k " << chunks << ": "
        << mutant->damage;
  }
  for (const auto& [kind, times] : kinds) std::printf("%s: %d\n", kind.c_str(), times);
}

TEST(Mutants, BrokenRulesOfProceduresAreNamed) {
  const auto message = [](Procedure procedure) {
    const auto facts = check(procedure);
    return facts.ok() ? std::string() : facts.error().message;
  };
  Procedure star{"star", Goal::AllReduce, {{{0}, {1}, {2}}, 1, {}}, {}, {}, {}};
  star.collective.rounds = {{{{{1}, {0}, {0}, true}, {{2}, {0}, {0}, true}}},
                            {{{{0}, {1}, {0}, false}}},
                            {{{{0}, {2}, {0}, false}}}};
  EXPECT_EQ(message(star),
            "round 0, move 2>0.0+: worker 0 receives another message in the same round");
  EXPECT_TRUE(examine(star.collective).ok());
  EXPECT_EQ(examine(star.collective).value().port_messages, 2);
  EXPECT_EQ(examine(star.collective).value().peak_scratch, 2);
  Procedure twice = make_procedure("ring", {{{0}, {1}}}).value();
  twice.collective.rounds.push_back(twice.collective.rounds.back());
  EXPECT_EQ(message(twice),
            "round 2, move 0>1.1: it puts what is not the whole, or is there already");
  Procedure gather = make_procedure("all-gather-ring", {{{0}, {1}, {2}}}).value();
  gather.collective.rounds[0].moves[0].chunk = {2};
  EXPECT_EQ(message(gather), "round 0, move 0>1.2: the sender has nothing of this chunk yet");
  gather.owners.pop_back();
  EXPECT_EQ(message(gather), "it names 2 owners: expected one for each of 3 chunks");
  gather.owners.push_back({9});
  EXPECT_EQ(message(gather), "owner 9 is not a member");
  Procedure scatter = make_procedure("reduce-scatter-ring", {{{0}, {1}, {2}}}).value();
  scatter.collective.rounds.pop_back();
  scatter.collective.rounds.push_back({{{{0}, {2}, {0}, false}}});
  EXPECT_NE(message(scatter), "");
}

}  // namespace
}  // namespace tenuto
