// Schedules of blocks: compared with proved best orders, with the bound that the periodic schedule
// proves, and with steps whose answer is known in closed form.
#include "adapt/layout/block_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "adapt/layout/exact_blocks.h"
#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

using Orders = std::vector<std::vector<bool>>;

constexpr BlockPolicy kPolicies[] = {BlockPolicy::OneForwardOneBackward, BlockPolicy::WithTransfers,
                                     BlockPolicy::BackwardFirst, BlockPolicy::ForwardsFirst,
                                     BlockPolicy::Periodic};
constexpr double kClose = 1e-9;
constexpr uint64_t kPlans = kSanitized ? 300 : 3000;

// What a random step may be.
struct LoadKind {
  int32_t stages = 4, micros = 4;  // at most; 2 at least
  bool half_duplex = false;
  bool whole = false;  // times are small whole numbers, many of them equal or 0
};

double up_to(Random& random, double most) { return most * random.uniform(); }

LayoutLoads random_loads(uint64_t seed, const LoadKind& kind) {
  Random random(mix(31, seed, kind.half_duplex, kind.whole));
  LayoutLoads loads;
  loads.half_duplex = kind.half_duplex;
  loads.micros = static_cast<int32_t>(2 + random.below(kind.micros - 1));
  const int64_t stages = 2 + random.below(kind.stages - 1);
  const auto whole = [&] { return static_cast<double>(random.below(12)); };
  for (int64_t n = 0; n < stages; ++n) {
    const bool reduces = random.below(2) == 0;
    if (kind.whole) {
      loads.stages.push_back({whole(), whole(), reduces ? 2 * whole() : 0});
      loads.links.push_back({whole(), whole()});
    } else {
      const double forward = 1 + up_to(random, 9);
      loads.stages.push_back(
          {forward, forward * (0.7 + up_to(random, 1.8)), reduces ? up_to(random, 40) : 0});
      const double transfer = (0.05 + up_to(random, 8)) * std::exp(up_to(random, 3) - 2);
      loads.links.push_back({transfer, transfer});
    }
  }
  loads.links.pop_back();
  return loads;
}

// Calls `check` for as many random steps, half of them with half-duplex links, half of them whole.
template <class Check>
void for_plans(uint64_t count, LoadKind kind, Check check) {
  for (uint64_t seed = 0; seed < count; ++seed) {
    kind.half_duplex = seed % 2 == 1;
    kind.whole = seed % 4 >= 2;
    SCOPED_TRACE(cat("seed ", seed));
    check(random_loads(seed, kind));
  }
}

// The most forwards begun and backwards not ended.
int32_t most_in_flight(const std::vector<bool>& order) {
  int32_t now = 0, most = 0;
  for (const bool backward : order) most = std::max(most, now += backward ? -1 : 1);
  return most;
}

// What a schedule says of itself is true.
void expect_true(const LayoutLoads& loads, const BlockSchedule& schedule) {
  const auto replayed = replay_blocks(loads, schedule.order, schedule.link_order);
  ASSERT_TRUE(replayed.has_value()) << name_of(schedule.policy);
  EXPECT_EQ(replayed->makespan, schedule.makespan) << name_of(schedule.policy);
  EXPECT_EQ(replayed->order, schedule.order);
  EXPECT_EQ(replayed->link_order, schedule.link_order);
  ASSERT_EQ(schedule.in_flight.size(), loads.stages.size());
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    EXPECT_EQ(schedule.in_flight[n], most_in_flight(schedule.order[n])) << "stage " << n;
    EXPECT_EQ(std::count(schedule.order[n].begin(), schedule.order[n].end(), true), loads.micros);
  }
  EXPECT_GE(schedule.makespan, least_makespan(loads) * (1 - kClose));
}

// All orders of a stage in which each backward comes after its forward.
void add_orders(int32_t micros, std::vector<bool>& begun, int32_t forwards, Orders& all) {
  const auto backwards = static_cast<int32_t>(begun.size()) - forwards;
  if (backwards == micros) all.push_back(begun);
  for (const bool backward : {false, true}) {
    if (backward ? backwards == forwards : forwards == micros) continue;
    begun.push_back(backward);
    add_orders(micros, begun, forwards + (backward ? 0 : 1), all);
    begun.pop_back();
  }
}
Orders all_orders(int32_t micros) {
  Orders all;
  std::vector<bool> begun;
  add_orders(micros, begun, 0, all);
  return all;
}

// The best makespan of all orders of all stages, and links with half duplex, by replaying each of
// them; with at most so many micro-batches in flight at each stage.
double enumerated_makespan(const LayoutLoads& loads, const std::vector<int32_t>& most) {
  const Orders all = all_orders(loads.micros);
  const size_t stages = loads.stages.size();
  const size_t places = stages + (loads.half_duplex ? loads.links.size() : 0);
  std::vector<size_t> pick(places, 0);
  double best = HUGE_VAL;
  for (size_t place = 0; place < places;) {
    Orders order, link_order;
    bool within = true;
    for (size_t p = 0; p < places; ++p) {
      (p < stages ? order : link_order).push_back(all[pick[p]]);
      within = within && (p >= stages || most.empty() || most_in_flight(all[pick[p]]) <= most[p]);
    }
    if (within) {
      const auto schedule = replay_blocks(loads, order, link_order);
      if (schedule) best = std::min(best, schedule->makespan);
    }
    for (place = 0; place < places && ++pick[place] == all.size(); ++place) pick[place] = 0;
  }
  return best;
}

LayoutLoads uniform_loads(int32_t stages, int32_t micros) {
  LayoutLoads loads;
  loads.stages.assign(static_cast<size_t>(stages), {1, 2, 0});
  loads.links.resize(static_cast<size_t>(stages) - 1);
  loads.micros = micros;
  return loads;
}

TEST(ExactBlocks, IsTheBestOfAllOrders) {
  for_plans(kSanitized ? 40 : 200, {3, 3}, [](const LayoutLoads& loads) {
    // Five places with three micro-batches have 3,125 orders.
    const double best = enumerated_makespan(loads, {});
    EXPECT_NEAR(exact_makespan(loads), best, kClose * best);
  });
}

// The published bound, on a schedule that repeats every period: each stage and link, but the last
// stage, costs at most two periods; the last micro-batch starts M - 1 periods after the first.
TEST(BlockSchedule, BoundsHold) {
  int tight = 0;
  for_plans(kPlans, {4, 4}, [&](const LayoutLoads& loads) {
    double period = 0, reduction = 0;
    for (const StageLoad& stage : loads.stages) {
      period = std::max(period, stage.both());
      reduction = std::max(reduction, stage.reduction);
    }
    for (const LinkLoad& link : loads.links) period = std::max(period, link.both());
    const auto stages = static_cast<double>(loads.stages.size());
    const double exact = exact_makespan(loads), least = least_makespan(loads);
    const double best = best_schedule(loads)->makespan;
    const double periodic = schedule_blocks(loads, BlockPolicy::Periodic).makespan;
    EXPECT_LE(least, exact * (1 + kClose));
    EXPECT_LE(exact, best * (1 + kClose));
    EXPECT_LE(best, periodic * (1 + kClose));
    EXPECT_LE(periodic, ((loads.micros + 4 * stages - 4) * period + reduction) * (1 + kClose));
    tight += exact <= least * (1 + kClose) ? 1 : 0;
  });
  std::printf("the lower bound is exact for %d of %d\n", tight, static_cast<int>(kPlans));
  EXPECT_GE(tight, static_cast<int>(kPlans) / 3);
}

TEST(BestSchedule, IsOptimalOnSmallSteps) {
  BlockEffort both, exchanges;
  both.replays = exchanges.replays = 2'000;
  both.nodes = 20'000;
  int all = 0, by_both = 0, by_exchanges = 0;
  for_plans(kPlans, {4, 4}, [&](const LayoutLoads& loads) {
    const double optimum = exact_makespan(loads) * (1 + kClose);
    const auto schedule = best_schedule(loads, both);
    expect_true(loads, *schedule);
    ++all;
    by_both += schedule->makespan <= optimum ? 1 : 0;
    by_exchanges += best_schedule(loads, exchanges)->makespan <= optimum ? 1 : 0;
  });
  std::printf("optimal: %d of %d, by exchanges alone %d\n", by_both, all, by_exchanges);
  EXPECT_EQ(by_both, all);
  EXPECT_GE(by_exchanges, all * 99 / 100);
}

// Steps on which the policies are far from the optimum.
TEST(BestSchedule, SolvesTheStepsOnWhichPoliciesAreWorst) {
  struct Case {
    LayoutLoads loads;
    double optimum, policies;  // the latter as a prototype found
  };
  const std::vector<Case> cases = {
      {{{{0, 0, 0}, {3, 10, 2}, {4, 0, 9}}, {{10, 4}, {5, 8}}, 3, false}, 67, 84},
      {{{{10, 8, 0}, {10, 1, 15}}, {{0, 3}}, 4, false}, 72, 86},
      {{{{18, 18, 0}, {8, 2, 1}}, {{7, 1}}, 3, false}, 108, 126},
      {{{{33, 25, 0}, {8, 6, 0}, {3, 10, 0}}, {{8, 10}, {1, 4}}, 4, false}, 232, 282}};
  for (const Case& one : cases) {
    EXPECT_EQ(exact_makespan(one.loads), one.optimum);
    EXPECT_LE(best_schedule(one.loads)->makespan, one.policies);
    for (const bool branches : {false, true}) {
      BlockEffort effort;
      (branches ? effort.nodes : effort.replays) = 2'000;
      const auto schedule = best_schedule(one.loads, effort);
      EXPECT_EQ(schedule->makespan, one.optimum) << (branches ? "branches" : "exchanges");
      expect_true(one.loads, *schedule);
      EXPECT_EQ(schedule->improved, best_schedule(one.loads)->makespan > one.optimum);
    }
  }
}

TEST(BlockSchedule, UniformStagesTakeTheKnownTime) {
  for (const int32_t stages : {1, 2, 4, 7}) {
    for (const int32_t micros : {1, 3, 4, 16}) {
      const LayoutLoads loads = uniform_loads(stages, micros);
      const double known = (micros + stages - 1) * 3;
      for (const BlockPolicy policy :
           {BlockPolicy::OneForwardOneBackward, BlockPolicy::ForwardsFirst}) {
        EXPECT_EQ(schedule_blocks(loads, policy).makespan, known)
            << name_of(policy) << ", " << stages << " stages, " << micros << " micro-batches";
      }
      EXPECT_EQ(best_schedule(loads)->makespan, known);
    }
  }
}

// Worked out by hand. Two stages, f = b = 2, transfers of 3 each way: the first stage is free for
// its second forward at once, and its first backward comes back at 2 + 3 + 4 + 3 = 12.
TEST(BlockSchedule, TransfersTakeTheirTime) {
  LayoutLoads loads{{{2, 2, 0}, {2, 2, 5}}, {{3, 3}}, 2, false};
  const Orders ahead = {{false, false, true, true}, {false, true, false, true}};
  const Orders in_turn = {{false, true, false, true}, {false, true, false, true}};
  // The second micro-batch is at the second stage at 8, when that has just ended backward 0 (9).
  EXPECT_EQ(replay_blocks(loads, ahead)->makespan, 18);
  EXPECT_EQ(replay_blocks(loads, in_turn)->makespan, 28);
  // The first stage needs 12 + 2 = 14 for one micro-batch. With half duplex the second forward
  // transfer (5 to 8) still ends before the first backward one begins (9).
  loads.half_duplex = true;
  EXPECT_EQ(replay_blocks(loads, ahead)->makespan, 18);
  // Sent in turn, the second forward transfer waits for the first backward one (9 to 12).
  EXPECT_EQ(replay_blocks(loads, ahead, {{false, true, false, true}})->makespan, 24);
}

TEST(BlockSchedule, PoliciesKeepWhatTheyPromise) {
  for_plans(kPlans / 3, {8, 12}, [](const LayoutLoads& loads) {
    const auto stages = static_cast<int32_t>(loads.stages.size());
    for (const BlockPolicy policy : kPolicies) {
      const BlockSchedule schedule = schedule_blocks(loads, policy);
      EXPECT_EQ(schedule.policy, policy);
      EXPECT_FALSE(schedule.improved);
      expect_true(loads, schedule);
      for (int32_t n = 0; n < stages; ++n) {
        const int32_t most = schedule.in_flight[static_cast<size_t>(n)];
        const std::vector<bool>& order = schedule.order[static_cast<size_t>(n)];
        if (policy == BlockPolicy::OneForwardOneBackward) {
          EXPECT_LE(most, std::min(loads.micros, stages - n));
        }
        if (policy == BlockPolicy::ForwardsFirst) {
          EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
        }
      }
    }
  });
}

// Without orders of links, replays send backwards first, as these policies do.
TEST(BlockSchedule, ReplaysWithoutLinkOrdersSendBackwardsFirst) {
  for_plans(kPlans / 10, {6, 8}, [](const LayoutLoads& loads) {
    for (const BlockPolicy policy : {BlockPolicy::OneForwardOneBackward, BlockPolicy::WithTransfers,
                                     BlockPolicy::BackwardFirst}) {
      const BlockSchedule schedule = schedule_blocks(loads, policy);
      const auto replayed = replay_blocks(loads, schedule.order);
      ASSERT_TRUE(replayed.has_value());
      EXPECT_NEAR(replayed->makespan, schedule.makespan, kClose * schedule.makespan);
    }
  });
}

TEST(BestSchedule, KeepsLimitsOfMicroBatchesInFlight) {
  int tighter = 0;
  for_plans(kPlans / 15, {3, 3}, [&](const LayoutLoads& loads) {
    Random random(mix(7, static_cast<uint64_t>(loads.stages[0].forward * 1000), 3));
    BlockEffort effort;
    for (size_t n = 0; n < loads.stages.size(); ++n) {
      effort.most_in_flight.push_back(static_cast<int32_t>(1 + random.below(loads.micros)));
    }
    const double best = enumerated_makespan(loads, effort.most_in_flight);
    tighter += best > exact_makespan(loads) * (1 + kClose) ? 1 : 0;
    for (const int64_t nodes : {0, 20'000}) {
      for (const int64_t replays : {0, 2'000}) {
        effort.nodes = nodes;
        effort.replays = replays;
        const auto schedule = best_schedule(loads, effort);
        ASSERT_TRUE(schedule.has_value());
        expect_true(loads, *schedule);
        for (size_t n = 0; n < loads.stages.size(); ++n) {
          EXPECT_LE(schedule->in_flight[n], effort.most_in_flight[n]) << "stage " << n;
        }
        EXPECT_GE(schedule->makespan, best * (1 - kClose));
        if (nodes > 0) {
          EXPECT_NEAR(schedule->makespan, best, kClose * best);
        }
      }
    }
  });
  EXPECT_GE(tighter, static_cast<int>(kPlans) / 100);  // limits that matter
}

TEST(BestSchedule, NeedsAMicroBatchAtEachStage) {
  BlockEffort effort;
  effort.most_in_flight = {2, 0, 1};
  EXPECT_FALSE(best_schedule(uniform_loads(3, 4), effort).has_value());
  effort.most_in_flight = {1, 1, 1};
  EXPECT_EQ(best_schedule(uniform_loads(3, 4), effort)->makespan, 4 * 3 * 3);
}

TEST(BlockSchedule, RefusesOrdersThatWaitForEver) {
  const LayoutLoads loads = uniform_loads(2, 2);
  const std::vector<bool> in_turn = {false, true, false, true};
  const std::vector<bool> ahead = {false, false, true, true};
  EXPECT_TRUE(replay_blocks(loads, {ahead, in_turn}).has_value());
  // The second stage waits for a forward that the first runs only after its backward.
  EXPECT_FALSE(replay_blocks(loads, {in_turn, ahead}).has_value());
  EXPECT_FALSE(replay_blocks(loads, {{true, false, false, true}, in_turn}).has_value());
  EXPECT_FALSE(replay_blocks(loads, {{false, false, false, true}, in_turn}).has_value());
  EXPECT_FALSE(replay_blocks(loads, {ahead, {false, true, true, true}}).has_value());
}
TEST(BlockSchedule, RefusesOrdersOfLinksThatWaitForEver) {
  LayoutLoads loads = uniform_loads(2, 2);
  loads.links = {{1, 1}};
  loads.half_duplex = true;
  const std::vector<bool> in_turn = {false, true, false, true};
  EXPECT_TRUE(replay_blocks(loads, {in_turn, in_turn}, {in_turn}).has_value());
  EXPECT_FALSE(replay_blocks(loads, {in_turn, in_turn}, {{false, false, true, true}}).has_value());
  EXPECT_TRUE(replay_blocks(loads, {in_turn, in_turn}).has_value());
  EXPECT_FALSE(replay_blocks(loads, {in_turn, {false, false, true, true}}).has_value());
}

// Larger steps: what the search says is true, it is never slower than a policy, and it gains where
// the policies leave much.
TEST(BestSchedule, ImprovesLargerSteps) {
  double before = 0, after = 0;
  int64_t count = 0;
  for_plans(kSanitized ? 8 : 60, {16, 24}, [&](const LayoutLoads& loads) {
    BlockEffort effort;
    effort.replays = 1'000;
    const auto policies = best_schedule(loads), found = best_schedule(loads, effort);
    expect_true(loads, *found);
    EXPECT_LE(found->makespan, policies->makespan);
    EXPECT_EQ(found->improved, found->makespan < policies->makespan);
    before += policies->makespan / least_makespan(loads) - 1;
    after += found->makespan / least_makespan(loads) - 1;
    ++count;
  });
  const auto steps = static_cast<double>(count);
  std::printf("above the lower bound: policies %.2f %%, search %.2f %%\n", 100 * before / steps,
              100 * after / steps);
  EXPECT_LE(after, 0.6 * before);
}

TEST(BestSchedule, GivesTheSameScheduleAgain) {
  for_plans(20, {8, 12}, [](const LayoutLoads& loads) {
    BlockEffort effort;
    effort.replays = 500;
    effort.nodes = 2'000;
    const auto one = best_schedule(loads, effort), two = best_schedule(loads, effort);
    EXPECT_EQ(one->order, two->order);
    EXPECT_EQ(one->link_order, two->link_order);
    EXPECT_EQ(one->makespan, two->makespan);
    EXPECT_EQ(one->policy, two->policy);
  });
}

// A step without any work is over at once.
TEST(BestSchedule, TakesStepsWithoutWork) {
  for (const bool half_duplex : {false, true}) {
    LayoutLoads loads;
    loads.stages.resize(3);
    loads.links.resize(2);
    loads.micros = 3;
    loads.half_duplex = half_duplex;
    BlockEffort effort;
    effort.replays = effort.nodes = 100;
    for (const BlockPolicy policy : kPolicies) {
      EXPECT_EQ(schedule_blocks(loads, policy).makespan, 0);
    }
    const auto schedule = best_schedule(loads, effort);
    EXPECT_EQ(schedule->makespan, 0);
    expect_true(loads, *schedule);
  }
}

TEST(BlockSchedule, PoliciesHaveNames) {
  EXPECT_STREQ(name_of(BlockPolicy::OneForwardOneBackward), "1f1b");
  EXPECT_STREQ(name_of(BlockPolicy::WithTransfers), "1f1b+transfers");
  EXPECT_STREQ(name_of(BlockPolicy::BackwardFirst), "backward-first");
  EXPECT_STREQ(name_of(BlockPolicy::ForwardsFirst), "gpipe");
  EXPECT_STREQ(name_of(BlockPolicy::Periodic), "periodic");
}

}  // namespace
}  // namespace tenuto
