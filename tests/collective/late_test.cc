// The exchange with the late member keeps its rules and takes the fewest rounds, for every number
// of members.
#include "collective/late.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/shapes.h"
#include "ir/check.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Checks the rules of the exchange that check() does not. check() refuses two messages at one port
// in a round, a put of an incomplete sum or to a member that has the sum, a contribution that is
// added twice or never, and members that end without the sum.
void expect_exchange(const Procedure& procedure, int32_t count, int32_t asked) {
  const Collective& collective = procedure.collective;
  const WorkerId late = procedure.late.back();
  const int32_t chunks = collective.chunk_count;
  const bool rounded = count == 6 && asked > 5;
  EXPECT_EQ(chunks, rounded ? (asked + 4) / 5 * 5 : asked);
  EXPECT_EQ(last_rounds(procedure),
            chunks + doublings(count) - 1 + (count == 3 && chunks > 2 ? 1 : 0));
  std::set<ChunkId> raw, part;
  const size_t first = collective.rounds.size() - static_cast<size_t>(last_rounds(procedure));
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    std::set<ChunkId> raw_now;
    for (const Move& move : collective.rounds[r].moves) {
      if (r < first) {
        EXPECT_TRUE(move.add && move.from != late && move.to != late);
        continue;
      }
      if (!move.add) continue;
      const WorkerId owner = procedure.owners[static_cast<size_t>(move.chunk.value)];
      ASSERT_TRUE(move.from == late ? move.to == owner : move.from == owner && move.to == late);
      EXPECT_TRUE((move.from == late ? raw : part).insert(move.chunk).second);
      if (move.from == late) raw_now.insert(move.chunk);
    }
    if (r < first) continue;
    for (const Move& move : collective.rounds[r].moves) {
      const bool answered = !move.add || move.to != late || raw_now.count(move.chunk) == 1;
      EXPECT_TRUE(answered) << r;
    }
  }
  // `part` may have fewer chunks: with three members the late one may get the whole sum instead.
  EXPECT_EQ(raw.size(), static_cast<size_t>(chunks));
}

void expect_right(int32_t count, int32_t chunks) {
  SCOPED_TRACE(cat("n ", count, " k ", chunks));
  CollectiveShape shape = shape_for({}, count, 0);
  shape.chunks = chunks;
  shape.late = {shape.members[static_cast<size_t>(count / 3)]};
  const auto made = make_procedure("late-one", shape);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto facts = check(made.value());
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  expect_exchange(made.value(), count, chunks);
}

TEST(Late, SmallSizesWithEveryCountOfChunks) {
  for (int32_t count = 2; count <= (kSanitized ? 12 : 40); ++count) {
    for (int32_t chunks = 1; chunks <= 3 * (count - 1) + 3; ++chunks) expect_right(count, chunks);
  }
}

TEST(Late, SizesToThreeHundred) {
  for (int32_t count = 2; count <= (kSanitized ? 70 : 300); ++count) {
    for (const int32_t chunks : {count - 1, 1, 2, count / 2, doublings(count) + 3, count + 2}) {
      expect_right(count, std::max(chunks, 1));
    }
  }
  for (int32_t count = 2; count <= (kSanitized ? 40 : 300); count += 7) {
    expect_right(count, 2 * (count - 1));
  }
}

TEST(Late, ManyChunksForEachOwner) {
  for (int32_t count = 2; count <= (kSanitized ? 16 : 40); ++count) {
    for (const int32_t times : {5, 7, 8, 16}) expect_right(count, times * (count - 1));
  }
}

TEST(Late, LargeSizes) {
  if (kSanitized) return;
  for (const int32_t count : {511, 512, 768, 1000, 1023, 1024}) expect_right(count, count - 1);
  expect_right(1024, 1);
  expect_right(1024, 26);
  expect_right(1000, 100);
  expect_right(1000, 1500);
  for (const int32_t count : {513, 600, 769, 1022, 1023}) {
    for (const int32_t chunks : {2, 37, 300}) expect_right(count, chunks);
  }
}

TEST(Late, OwnersAreBalanced) {
  for (int32_t count = 4; count <= 64; ++count) {
    for (const int32_t chunks : {count - 1, 3 * count, 10}) {
      if (count == 6) continue;  // chunks are rounded up to a multiple of 5
      const auto made = late_rounds(count, chunks);
      std::vector<int32_t> owned(static_cast<size_t>(count - 1), 0);
      for (const int32_t owner : made.value().owners) ++owned[static_cast<size_t>(owner)];
      // With 2^L - 1 members the first one may own only one chunk.
      const bool one = ((count + 1) & count) == 0;
      const int32_t least = *std::min_element(owned.begin() + (one ? 1 : 0), owned.end());
      EXPECT_LE(*std::max_element(owned.begin(), owned.end()) - least, 1) << count << " " << chunks;
    }
  }
}

// Any member may be the late one.
TEST(Late, AnyMember) {
  for (int32_t count = 2; count <= 9; ++count) {
    for (int32_t late = 0; late < count; ++late) {
      CollectiveShape shape = shape_for({}, count);
      shape.late = {shape.members[static_cast<size_t>(late)]};
      const auto made = make_procedure("late-one", shape);
      EXPECT_TRUE(check(made.value()).ok()) << count << " " << late;
      expect_exchange(made.value(), count, std::max(count - 1, 1));
    }
  }
}

// With fewer chunks than members the early sum takes few rounds: the busiest port moves about one
// tensor, not one for each owner.
TEST(Late, FewChunksAreSummedUpInFewRounds) {
  for (const int32_t count : {16, 33, 64, 200, 512}) {
    for (const int32_t chunks : {1, 4, count / 3}) {
      CollectiveShape shape = shape_for({}, count);
      shape.chunks = chunks;
      shape.late = {shape.members[0]};
      const auto made = make_procedure("late-one", shape);
      const int32_t early = made.value().sections[0].round_end;
      EXPECT_EQ(early, doublings(count - 1));
      const std::vector<Round> rounds(made.value().collective.rounds.begin(),
                                      made.value().collective.rounds.begin() + early);
      EXPECT_LE(length_of(rounds).chunks, chunks + doublings(count - 1));
    }
  }
}

// Each late member that joins gives its input to all and takes over its own chunks; the rest is as
// with one late member.
TEST(Late, Join) {
  for (int32_t count = 3; count <= (kSanitized ? 10 : 24); ++count) {
    for (int32_t late = 1; late <= count - 2; ++late) {
      CollectiveShape shape = shape_for({}, count);
      for (int32_t i = 0; i < late; ++i) {
        shape.late.push_back(shape.members[static_cast<size_t>((i * 5 + 2) % count)]);
      }
      if (std::set<WorkerId>(shape.late.begin(), shape.late.end()).size() < shape.late.size()) {
        continue;  // 5 divides the count: a member was chosen twice
      }
      for (const char* name : {"late-join", "late-together"}) {
        const auto made = make_procedure(name, shape);
        ASSERT_TRUE(made.ok()) << made.error().message;
        const auto facts = check(made.value());
        EXPECT_TRUE(facts.ok()) << name << " " << count << " " << late << ": "
                                << (facts.ok() ? "" : facts.error().message);
      }
      const auto made = make_procedure("late-join", shape);
      int32_t before = 0;
      for (size_t s = 0; s < made.value().sections.size(); ++s) {
        const Section& section = made.value().sections[s];
        if (section.name.rfind("join", 0) == 0) {
          EXPECT_LE(section.round_end - before, count - 2);
        }
        before = section.round_end;
      }
    }
  }
}

}  // namespace
}  // namespace tenuto
