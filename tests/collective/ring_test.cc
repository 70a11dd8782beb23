// The ring is right for every size, and refused if anything in it is lost or doubled.
#include "collective/ring.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/check.h"

namespace tenuto {
namespace {

std::vector<WorkerId> workers(int32_t count) {
  std::vector<WorkerId> members;
  for (int32_t i = 0; i < count; ++i) members.push_back({(i * 7 + 3) % (7 * count)});
  return members;
}

TEST(Ring, EverySize) {
  for (int32_t count = 1; count <= 16; ++count) {
    const Collective ring = make_ring(workers(count));
    const Status status = check(ring);
    EXPECT_TRUE(status.ok()) << count << ": " << status.error().message;
    EXPECT_EQ(ring.rounds.size(), static_cast<size_t>(2 * (count - 1)));
    EXPECT_EQ(ring.chunk_count, count);
    std::map<WorkerId, int> sent;
    for (const Round& round : ring.rounds) {
      std::set<WorkerId> senders, receivers;
      for (const Move& move : round.moves) {
        ++sent[move.from];
        EXPECT_TRUE(senders.insert(move.from).second);
        EXPECT_TRUE(receivers.insert(move.to).second);
      }
    }
    for (const auto& [worker, moves] : sent) EXPECT_EQ(moves, 2 * (count - 1)) << worker.value;
  }
}

// The sum itself: chunk c adds the members' contributions in ring order, beginning with member c.
TEST(Ring, Numbers) {
  const int32_t count = 5;
  const Collective ring = make_ring(workers(count));
  std::map<WorkerId, std::vector<std::string>> state;
  for (const WorkerId member : ring.members) {
    state[member].assign(count, "." + std::to_string(member.value));
  }
  for (const Round& round : ring.rounds) {
    const auto before = state;
    for (const Move& move : round.moves) {
      const auto chunk = static_cast<size_t>(move.chunk.value);
      std::string& target = state[move.to][chunk];
      const std::string& came = before.at(move.from)[chunk];
      target = move.add ? came + target : came;
    }
  }
  for (size_t chunk = 0; chunk < count; ++chunk) {
    std::string wanted;
    for (size_t i = 0; i < count; ++i) {
      wanted += "." + std::to_string(ring.members[(chunk + i) % count].value);
    }
    for (const WorkerId member : ring.members) EXPECT_EQ(state[member][chunk], wanted);
  }
}

TEST(Ring, MutationsAreRefused) {
  for (int32_t count = 2; count <= 9; ++count) {
    const Collective ring = make_ring(workers(count));
    for (size_t r = 0; r < ring.rounds.size(); ++r) {
      Collective mutant = ring;
      mutant.rounds.erase(mutant.rounds.begin() + static_cast<std::ptrdiff_t>(r));
      EXPECT_FALSE(check(mutant).ok()) << count << " lost round " << r;
      if (ring.rounds[r].moves[0].add) {
        mutant = ring;
        mutant.rounds.insert(mutant.rounds.begin() + static_cast<std::ptrdiff_t>(r),
                             ring.rounds[r]);
        EXPECT_FALSE(check(mutant).ok()) << count << " doubled round " << r;
      }
      for (size_t m = 0; m < ring.rounds[r].moves.size(); ++m) {
        mutant = ring;
        auto& moves = mutant.rounds[r].moves;
        moves.erase(moves.begin() + static_cast<std::ptrdiff_t>(m));
        EXPECT_FALSE(check(mutant).ok()) << count << " lost move " << r << " " << m;
        mutant = ring;
        mutant.rounds[r].moves[m].to = mutant.rounds[r].moves[m].from;
        EXPECT_FALSE(check(mutant).ok());
        if (!ring.rounds[r].moves[m].add) continue;
        mutant = ring;
        mutant.rounds[r].moves[m].add = false;
        EXPECT_FALSE(check(mutant).ok()) << count << " add made put " << r << " " << m;
        mutant = ring;
        mutant.rounds[r].moves.push_back(ring.rounds[r].moves[m]);
        EXPECT_FALSE(check(mutant).ok()) << count << " doubled move " << r << " " << m;
      }
    }
  }
}

TEST(Ring, StrangersAreRefused) {
  const auto message = [](const Collective& collective) {
    const Status status = check(collective);
    EXPECT_FALSE(status.ok());
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message({{}, 1, {}}), "a collective needs a member");
  EXPECT_EQ(message({{{0}}, 0, {}}), "a collective needs at least one chunk");
  EXPECT_EQ(message({{{0}, {0}}, 1, {}}), "the members must be different workers, found 0 again");
  EXPECT_EQ(message({{{0}, {1}}, 2147483647, {}}),
            "it has 0 moves; 2147483647 chunks and 2 members need at least 2147483647");
  EXPECT_EQ(message({{{0}, {1}}, 1, {{{{{0}, {2}, {0}, true}}}}}),
            "round 0, move 0>2.0+: expected two different members and a chunk of 0 to 0");
  EXPECT_EQ(message({{{0}, {1}}, 1, {{{{{0}, {1}, {0}, true}, {{0}, {1}, {0}, false}}}}}),
            "round 0, move 0>1.0: another move of the round puts something in the same place");
  EXPECT_EQ(message({{{0}, {1}}, 1, {{{{{0}, {1}, {0}, true}}}, {{{{0}, {1}, {0}, true}}}}}),
            "round 1, move 0>1.0+: it adds a contribution that is in the sum already");
}

}  // namespace
}  // namespace tenuto
