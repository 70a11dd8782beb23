#include "control/commit.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "control/query.h"

namespace tenuto {
namespace {

constexpr int64_t kNewest = 6;  // above all versions that are drawn

// A state in which everything that matters here is drawn: who holds what, who lives, what each has
// reported of which epoch, and since when a joiner takes part. Each stage has a holder that lives.
State draw(Random& random) {
  State state;
  state.epoch = 2;
  state.committed = random.below(4);
  state.members.resize(static_cast<size_t>(1 + random.below(5)));
  const auto workers = static_cast<int64_t>(state.members.size());
  for (Member& member : state.members) {
    member.alive = random.below(4) != 0;
    if (random.below(4) == 0) member.since = random.below(2) == 0 ? kNeverNeeded : random.below(5);
    member.report.epoch = random.below(5) == 0 ? 1 : 2;
    member.report.phase = random.below(3) == 0 ? Phase::Frozen : Phase::Running;
    member.report.version = state.committed + random.below(3) - 1;
  }
  state.stages.resize(static_cast<size_t>(1 + random.below(4)));
  for (Stage& stage : state.stages) {
    for (int32_t w = 0; w < workers; ++w) {
      if (random.below(2) == 0) stage.holders.push_back({w});
    }
    const WorkerId one{static_cast<int32_t>(random.below(workers))};
    if (!holds(stage, one)) stage.holders.push_back(one);
    state.members[static_cast<size_t>(one.value)].alive = true;
  }
  return state;
}

// The workers that live.
std::set<WorkerId> living(const State& state) {
  std::set<WorkerId> all;
  for (int32_t w = 0; w < static_cast<int32_t>(state.members.size()); ++w) {
    if (member_of(state, {w}).alive) all.insert({w});
  }
  return all;
}

// The workers that have to have `version`: those that live, and took part when the update was made.
std::set<WorkerId> keepers(const State& state, int64_t version) {
  std::set<WorkerId> all = living(state);
  std::erase_if(all, [&](WorkerId worker) { return member_of(state, worker).since >= version; });
  return all;
}

TEST(Commit, AnUpdateIsCommittedWhenAllItsKeepersHaveIt) {
  int kept = 0, frozen = 0;
  constexpr int kStates = 20'000;
  for (uint64_t seed = 0; seed < kStates; ++seed) {
    Random random(seed);
    const State state = draw(random);
    for (int64_t version = 0; version <= kNewest; ++version) {
      bool all = true, all_frozen = true;
      for (const WorkerId worker : keepers(state, version)) {
        const Report& report = member_of(state, worker).report;
        const bool runs = report.epoch == 2 && report.phase == Phase::Running;
        all = all && runs && report.version >= version;
      }
      for (const WorkerId worker : living(state)) {
        all_frozen = all_frozen && member_of(state, worker).report.version >= version;
      }
      ASSERT_EQ(is_kept(state, version), all) << "seed " << seed << ", version " << version;
      ASSERT_EQ(is_kept_by_the_frozen(state, version), all_frozen)
          << "seed " << seed << ", version " << version;
      kept += all ? 1 : 0;
      frozen += all_frozen ? 1 : 0;
    }
  }
  EXPECT_GT(kept, kStates / 10);
  EXPECT_GT(frozen, kept);
  EXPECT_LT(frozen, kStates * kNewest);
}

// One more keeper, or a keeper with less, never makes more versions committed.
TEST(Commit, AKeeperMoreOrBehindCommitsNothingMore) {
  for (uint64_t seed = 0; seed < 3'000; ++seed) {
    Random random(seed);
    const State state = draw(random);
    for (size_t w = 0; w < state.members.size(); ++w) {
      State more = state;
      more.members[w].alive = true;
      more.members[w].since = 0;
      State behind = state;
      behind.members[w].report.version -= 1;
      for (int64_t version = 1; version <= kNewest; ++version) {
        if (is_kept(state, version)) continue;
        ASSERT_FALSE(is_kept(more, version)) << "seed " << seed;
        ASSERT_FALSE(is_kept(behind, version)) << "seed " << seed;
      }
    }
  }
}

// Whether each stage has a living holder with this version or a newer one: it can be saved from
// there if versions are near enough.
bool is_in_reach(const State& state, int64_t version) {
  for (size_t s = 0; s < state.stages.size(); ++s) {
    bool any = false;
    for (const WorkerId holder : state.stages[s].holders) {
      const Member& of = member_of(state, holder);
      any = any || (of.alive && of.report.version >= version);
    }
    if (!any) return false;
  }
  return true;
}

TEST(Commit, TheNewestVersionInReach) {
  int none = 0, found = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    State state = draw(random);
    if (random.below(2) == 0) {
      for (Member& member : state.members) member.report.epoch = 2;
      for (Member& member : state.members) member.report.phase = Phase::Frozen;
    }
    const int64_t ceiling = random.below(kNewest) - 1;
    bool all = true;
    for (size_t w = 0; w < state.members.size(); ++w) {
      const Member& of = state.members[w];
      if (!of.alive || stages_of(state.stages, {static_cast<int32_t>(w)}).empty()) continue;
      all = all && of.report.epoch == 2 && of.report.phase == Phase::Frozen;
    }
    const auto newest = newest_in_reach(state, ceiling);
    ASSERT_EQ(newest.has_value(), all) << "seed " << seed;
    if (!all) {
      ++none;
      continue;
    }
    ++found;
    int64_t wanted = ceiling < 0 ? kNewest : ceiling;
    while (wanted >= 0 && !is_in_reach(state, wanted)) --wanted;
    ASSERT_EQ(*newest, wanted) << "seed " << seed;
  }
  EXPECT_GT(none, 1'000);
  EXPECT_GT(found, 1'000);
}

// What the coordinator asks for is never out of date when it arrives.
TEST(Commit, WhatIsAskedOfAllIsAheadOfAll) {
  State state;
  for (state.committed = 0; state.committed < 10; ++state.committed) {
    EXPECT_EQ(next_version(state), state.committed + 1);
    EXPECT_EQ(open_step(state), state.committed);
    EXPECT_TRUE(is_step_committed(state, open_step(state) - 1));
    EXPECT_FALSE(is_step_committed(state, open_step(state)));
    EXPECT_EQ(newest_version(state), state.committed + 1);
    EXPECT_GT(first_unmade_version(state), newest_version(state));
    // A worker that has the newest version may have begun the step that reads it, and no later one.
    EXPECT_EQ(first_unbegun_step(state), newest_version(state) + 1);
    for (int64_t held = state.committed; held <= newest_version(state); ++held) {
      EXPECT_TRUE(can_save(held, state.committed)) << held;
    }
    EXPECT_FALSE(can_save(state.committed, newest_version(state)));
    EXPECT_FALSE(can_save(first_unmade_version(state), state.committed));
  }
}

}  // namespace
}  // namespace tenuto
