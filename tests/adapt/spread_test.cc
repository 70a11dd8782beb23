// Which workers change their stage: compares the division of losses with trying all, and checks the
// moves and what they gain.
#include "adapt/spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "adapt/adapt.h"
#include "adapt/random_step.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// A table of costs that mostly, but not always, rise with the number of missing workers, with many
// ties.
MissingCosts draw_costs(Random& random, int32_t stages, int32_t holders) {
  MissingCosts costs;
  for (int32_t s = 0; s < stages; ++s) {
    auto& of = costs.emplace_back();
    for (int32_t x = 0; x < holders; ++x) of.push_back(Duration(10 * x + random.below(40)));
  }
  return costs;
}

struct Tried {
  Duration time = Duration::max();
  int32_t moves = 0;
};

// Tries every division. Of those whose time is within the share `gain` of the fastest, takes those
// with the fewest moves, and of these the fastest.
Tried try_all(const MissingCosts& costs, const std::vector<int32_t>& missing, double gain) {
  std::vector<Tried> all;
  std::vector<int32_t> division(costs.size(), 0);
  const int32_t sum = std::accumulate(missing.begin(), missing.end(), 0);
  for (;;) {
    if (std::accumulate(division.begin(), division.end(), 0) == sum) {
      Tried tried{Duration{}, 0};
      for (size_t s = 0; s < costs.size(); ++s) {
        tried.time = std::max(tried.time, costs[s][at(division[s])]);
        tried.moves += std::max(0, missing[s] - division[s]);
      }
      all.push_back(tried);
    }
    size_t place = 0;
    for (; place < costs.size(); ++place) {
      if (at(++division[place]) < costs[place].size()) break;
      division[place] = 0;
    }
    if (place == costs.size()) break;
  }
  Tried fastest, best{Duration::max(), INT32_MAX};
  for (const Tried& tried : all) fastest.time = std::min(fastest.time, tried.time);
  const auto allowed = static_cast<double>(fastest.time.count()) * (1 + gain) + 0.5;
  for (const Tried& tried : all) {
    if (static_cast<double>(tried.time.count()) > allowed) continue;
    if (std::pair(tried.moves, tried.time) < std::pair(best.moves, best.time)) best = tried;
  }
  return best;
}

TEST(Spread, IsTheBestOfAllDivisions) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(111, seed));
    const auto stages = static_cast<int32_t>(1 + random.below(5));
    const auto holders = static_cast<int32_t>(1 + random.below(4));
    const MissingCosts costs = draw_costs(random, stages, holders);
    std::vector<int32_t> missing;
    for (int32_t s = 0; s < stages; ++s) {
      missing.push_back(static_cast<int32_t>(random.below(holders + 1)));
    }
    const double gain = random.below(3) == 0 ? 0.2 : 0;
    const auto spread = spread_missing(costs, missing, gain);
    const int32_t all = std::accumulate(missing.begin(), missing.end(), 0);
    ASSERT_EQ(spread.has_value(), all <= stages * (holders - 1));
    if (!spread) continue;
    const Tried best = try_all(costs, missing, gain);
    EXPECT_EQ(spread->time, best.time);
    EXPECT_EQ(spread->moves, best.moves);
    Tried own{Duration{}, 0};
    for (size_t s = 0; s < costs.size(); ++s) {
      own.time = std::max(own.time, costs[s][at(spread->missing[s])]);
      own.moves += std::max(0, missing[s] - spread->missing[s]);
    }
    EXPECT_EQ(std::accumulate(spread->missing.begin(), spread->missing.end(), 0), all);
    EXPECT_EQ(own.time, spread->time);
    EXPECT_EQ(own.moves, spread->moves);
    moved += spread->moves > 0;
  }
  EXPECT_GT(moved, 100);
}

// Three dead workers of one stage and one of another: two workers move, and a step takes a third of
// the time.
TEST(Spread, ThreeDeadOfOneStageMoveTwoWorkers) {
  Step it = step_of({8, 4, 32}, 16);
  it.options.staggered = it.options.update = true;
  for (const int32_t dead : {2, 8 + 2, 16 + 2, 24 + 4}) it.cluster.workers[at(dead)].alive = false;
  AdaptOptions options;
  options.price = it.options;
  const auto here = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(here.ok()) << here.error().message;
  EXPECT_EQ(here.value().price, 384 * kStepOp);
  EXPECT_TRUE(here.value().moves.empty());
  options.moves = true;
  const auto moved = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(moved.ok()) << moved.error().message;
  EXPECT_EQ(moved.value().price, 129 * kStepOp);
  EXPECT_EQ(moved.value().lower_bound, 129 * kStepOp);
  ASSERT_EQ(moved.value().moves.size(), 2U);
  for (const StageMove& move : moved.value().moves) {
    EXPECT_EQ(move.to, StageId{2});
    EXPECT_EQ(move.source, WorkerId{26});  // the one that has the weights
    EXPECT_EQ(move.worker.value % 8, move.from.value);
    EXPECT_LT(move.worker.value / 8, 3);  // of a pipeline that has the gap
  }
  EXPECT_NE(moved.value().reason.find("holds stage 2 instead of"), std::string::npos);
}

TEST(Spread, NoWorkerMovesForASmallGain) {
  Step it = step_of({4, 3, 6}, 8);
  for (const int32_t dead : {1, 6}) it.cluster.workers[at(dead)].alive = false;
  EXPECT_TRUE(find_moves(it.plan, it.model, it.cluster, it.options, 0.02).value().empty());
  // Two dead of one stage: one of them is replaced.
  it.cluster.workers[6].alive = true;
  it.cluster.workers[5].alive = false;
  const auto moves = find_moves(it.plan, it.model, it.cluster, it.options, 0.02);
  ASSERT_TRUE(moves.ok());
  EXPECT_EQ(moves.value().size(), 1U);
  EXPECT_EQ(moves.value()[0].source, WorkerId{9});
  // No move makes a step six times as fast.
  EXPECT_TRUE(find_moves(it.plan, it.model, it.cluster, it.options, 5).value().empty());
}

// A stage without a live worker gets one; no peer can give it the state.
TEST(Spread, AStageWithoutLiveWorkersGetsOne) {
  Step it = step_of({3, 2, 4}, 0);
  it.cluster.workers[1].alive = it.cluster.workers[4].alive = false;
  AdaptOptions options;
  options.price = it.options;
  options.moves = true;
  const auto adapted = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(adapted.ok()) << adapted.error().message;
  ASSERT_EQ(adapted.value().moves.size(), 1U);
  EXPECT_EQ(adapted.value().moves[0].to, StageId{1});
  EXPECT_EQ(adapted.value().moves[0].source, WorkerId{});
  EXPECT_EQ(adapted.value().plan.stages[1].holders.size(), 1U);
  for (const int32_t more : {0, 2}) it.cluster.workers[at(more)].alive = false;
  const auto refused = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "only 2 workers are alive for 3 stages, and each stage needs one: start more workers");
}

// Whatever the troubles, moves never make a step slower, and the plan is right.
TEST(Spread, MovesAreRight) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(113, seed));
    Step it = random_step(random, {5, 4, 6});
    for (Worker& worker : it.cluster.workers) worker.alive = worker.alive && random.below(3) > 0;
    AdaptOptions options;
    options.price = it.options;
    options.effort = {200'000, 500, 1'000'000};
    options.route_effort = kFirstRoute;
    const auto here = adapt(it.plan, it.model, it.cluster, options);
    options.moves = true;
    const auto there = adapt(it.plan, it.model, it.cluster, options);
    const auto alive = std::count_if(it.cluster.workers.begin(), it.cluster.workers.end(),
                                     [](const Worker& worker) { return worker.alive; });
    ASSERT_EQ(there.ok(), alive >= static_cast<int64_t>(it.plan.stages.size()));
    if (!there.ok()) continue;
    const Adapted& found = there.value();
    EXPECT_TRUE(check(found.plan, sizes_of(it.model, found.plan.stages)).ok());
    EXPECT_EQ(price(found.plan, it.model, it.cluster, it.options).value().makespan, found.price);
    EXPECT_LE(found.lower_bound, found.price);
    if (here.ok()) {
      EXPECT_LE(found.price, here.value().price);
    }
    for (const StageMove& move : found.moves) {
      EXPECT_TRUE(it.cluster.workers[at(move.worker.value)].alive);
      const auto& holders = found.plan.stages[at(move.to.value)].holders;
      EXPECT_EQ(std::count(holders.begin(), holders.end(), move.worker), 1);
      EXPECT_TRUE(move.source.value < 0 ||
                  std::count(holders.begin(), holders.end(), move.source) == 1);
    }
    moved += !found.moves.empty();
  }
  EXPECT_GT(moved, 20);
}

}  // namespace
}  // namespace tenuto
