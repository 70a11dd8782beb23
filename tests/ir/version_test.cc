#include "ir/version.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <concepts>
#include <set>
#include <vector>

#include "ir/mass.h"

namespace tenuto {
namespace {

// A worker of the play: what it has, and whether it has begun the iteration that reads it.
struct Player {
  int64_t version = 0;
  bool begun = false;
  auto operator<=>(const Player&) const = default;
};

struct Play {
  int64_t committed = 0;
  std::vector<Player> workers;
  auto operator<=>(const Play&) const = default;
};

// What can come next: a worker begins an iteration, or takes its update if may_update() lets it, or
// the next version is committed, which all have.
std::vector<Play> after(const Play& play, int64_t last) {
  std::vector<Play> next;
  for (size_t w = 0; w < play.workers.size(); ++w) {
    const Player& of = play.workers[w];
    Play moved = play;
    if (!of.begun && of.version < last) {
      moved.workers[w].begun = true;
    } else if (of.begun && may_update({of.version}, {play.committed})) {
      moved.workers[w] = {of.version + 1, false};
    } else {
      continue;
    }
    next.push_back(moved);
  }
  const bool all = std::all_of(play.workers.begin(), play.workers.end(),
                               [&](const Player& of) { return of.version > play.committed; });
  if (all) {
    next.push_back(play);
    ++next.back().committed;
  }
  return next;
}

// All plays that can come, from the beginning to version `last`.
std::set<Play> all_plays(size_t workers, int64_t last) {
  const Play first{0, std::vector<Player>(workers)};
  std::set<Play> seen{first};
  for (std::vector<Play> open{first}; !open.empty();) {
    const Play play = open.back();
    open.pop_back();
    for (const Play& next : after(play, last)) {
      if (seen.insert(next).second) open.push_back(next);
    }
  }
  return seen;
}

// The three numbers cannot be taken for each other, nor a plain number for one of them.
static_assert(!std::equality_comparable_with<Iteration, Version>);
static_assert(!std::equality_comparable_with<Version, Mass>);
static_assert(!std::convertible_to<Iteration, Version> && !std::convertible_to<Version, Iteration>);
static_assert(!std::convertible_to<int64_t, Iteration> && !std::convertible_to<int64_t, Mass>);

TEST(Version, AnIterationReadsAndMakesOne) {
  EXPECT_EQ(iteration_on(Version{4}), Iteration{4});
  EXPECT_EQ(version_made_by(Iteration{4}), Version{5});
  EXPECT_EQ(iteration_that_made(Version{5}), Iteration{4});
  EXPECT_EQ(Version{4} + 3, Version{7});
}

// Also where doubles are not.
TEST(Mass, SumsAreExact) {
  const Mass large{int64_t{1} << 53};
  Mass sum = large + Mass{1};
  EXPECT_EQ(sum - large, Mass{1});
  sum += Mass{2};
  EXPECT_EQ(sum - large, Mass{3});
  EXPECT_GT(sum, large);
  EXPECT_EQ(share_of(Mass{3}, Mass{12}), 0.25);
}

// In every play no worker has a version, or has begun an iteration, that is said to be out of
// reach; in some play one has the newest version, and has begun the last iteration, that are in
// reach.
TEST(Version, NobodyIsFartherThanTheRulesSay) {
  for (const size_t workers : {2U, 3U, 4U}) {
    bool newest = false, begun = false;
    const std::set<Play> plays = all_plays(workers, 5);
    for (const Play& play : plays) {
      const Version committed{play.committed};
      for (const Player& of : play.workers) {
        const Version held{of.version};
        ASSERT_LE(held, newest_version(committed));
        ASSERT_LT(held, first_unmade(committed));
        ASSERT_TRUE(held == committed || leads_back(held, committed));
        newest = newest || held == newest_version(committed);
        if (!of.begun) continue;
        const Iteration under_way{of.version};
        ASSERT_LT(under_way, first_unbegun(committed));
        begun = begun || Iteration{under_way.value + 1} == first_unbegun(committed);
      }
    }
    EXPECT_TRUE(newest && begun) << workers << " workers";
    EXPECT_GT(plays.size(), 10U);
  }
}

// No worker waits for ever: from every play on, all come to the last version, and it is committed.
TEST(Version, NobodyWaitsForEver) {
  for (const Play& play : all_plays(3, 4)) {
    const bool over = play.committed == 4;
    EXPECT_EQ(after(play, 4).empty(), over) << "committed " << play.committed;
  }
}

// Each two versions of a play are so near that undoing leads the newer one to the older one.
TEST(Version, TheNewerVersionLeadsBackToTheOlder) {
  for (const Play& play : all_plays(3, 4)) {
    for (const Player& one : play.workers) {
      for (const Player& other : play.workers) {
        EXPECT_EQ(leads_back({one.version}, {other.version}), one.version > other.version);
      }
    }
  }
  EXPECT_FALSE(leads_back({3}, {3}));
  EXPECT_FALSE(leads_back({3}, {4}));
  EXPECT_FALSE(leads_back({3 + kUpdatesAhead + 1}, {3}));
}

}  // namespace
}  // namespace tenuto
