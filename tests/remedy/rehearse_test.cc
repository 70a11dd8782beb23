// Decisions played through troubles of known durations, on prices alone.
#include "remedy/rehearse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/fine_stages.h"
#include "plan/make_plan.h"
#include "remedy/outlay.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

// Two pipelines of two stages, with 1 MB of parameters each; links take 0.1 ms and 1 ms for 1 MB.
Rehearsal small_rehearsal() {
  Shape shape;
  shape.stages = shape.layers = shape.pipelines = 2;
  shape.micros = 4;
  shape.order = "1f1b";
  Rehearsal rehearsal;
  rehearsal.plan = make_plan(shape).value();
  Layer layer{.forward = kMillisecond, .backward_input = 2 * kMillisecond};
  layer.parameters = {1'000'000};
  rehearsal.model.layers.assign(2, layer);
  rehearsal.healthy = uniform_cluster(4, {kMillisecond / 10, 1e9});
  return rehearsal;
}

// Worker 3 is dead for 10 steps, lives for `alive`, and is dead again for 10.
Rehearsal coming_back(int64_t alive) {
  Rehearsal rehearsal = small_rehearsal();
  Cluster without = rehearsal.healthy;
  without.workers[3].alive = false;
  rehearsal.episodes = {{without, 10}, {rehearsal.healthy, alive}, {without, 10}};
  return rehearsal;
}

// Parameters, and optimizer state of twice their size, are sent by the other holder of its stage.
TEST(Rehearse, AWorkerThatComesBackFirstReceivesItsState) {
  const Rehearsal rehearsal = coming_back(30);
  const auto run = rehearse(rehearsal);
  ASSERT_TRUE(run.ok()) << run.error().message;
  const auto& parts = run.value().parts;
  const auto receives = std::find_if(parts.begin(), parts.end(), [](const RehearsedSteps& part) {
    return part.remedy == "a worker receives the state";
  });
  ASSERT_NE(receives, parts.end());
  ASSERT_NE(receives + 1, parts.end());
  EXPECT_EQ(receives->first, 10);
  EXPECT_EQ(receives->end, 10 + kStepsOfAMove);
  EXPECT_EQ(receives->change, Duration{});
  EXPECT_TRUE(receives->plan.schedule.lists[3].empty());
  const RehearsedSteps& with = *(receives + 1);
  EXPECT_EQ(with.change, 3 * kMillisecond + kMillisecond / 10);
  EXPECT_FALSE(with.plan.schedule.lists[3].empty());
  EXPECT_LT(with.step, receives->step);
  const auto best = best_in_hindsight(rehearsal);
  ASSERT_TRUE(best.ok()) << best.error().message;
  EXPECT_LE(best.value().total_ms, run.value().total_ms);
  EXPECT_EQ(best.value().parts.back().end, 50);
}

TEST(Rehearse, AWorkerThatIsSoonGoneAgainTakesNoPlace) {
  const Rehearsal rehearsal = coming_back(kStepsOfAMove - 1);
  for (const auto& run : {rehearse(rehearsal), best_in_hindsight(rehearsal)}) {
    ASSERT_TRUE(run.ok()) << run.error().message;
    int64_t end = 0;
    for (const RehearsedSteps& part : run.value().parts) {
      EXPECT_TRUE(part.plan.schedule.lists[3].empty()) << part.first;
      EXPECT_EQ(part.change, Duration{}) << part.first;
      EXPECT_EQ(part.first, end);
      end = part.end;
    }
    EXPECT_EQ(end, 20 + kStepsOfAMove - 1);
  }
}

// A worker becomes slow, and slower while the run finds out: first the plan for the first speed
// comes into force, then that for the second one.
TEST(Rehearse, ADecisionComesIntoForceAfterTheNextTroubleHasBegun) {
  for (const int64_t between : {int64_t{1}, int64_t{2}, int64_t{5}}) {
    SCOPED_TRACE(between);
    Rehearsal rehearsal = small_rehearsal();
    rehearsal.routes = true;
    Cluster slow = rehearsal.healthy, slower = slow;
    slow.workers[3].speed = 0.4;
    slower.workers[3].speed = 0.2;
    rehearsal.episodes = {{rehearsal.healthy, 20}, {slow, between}, {slower, 30}};
    const auto run = rehearse(rehearsal);
    ASSERT_TRUE(run.ok()) << run.error().message;
    const int64_t first = 20 + rehearsal.reaction_steps, second = first + between;
    bool found = false;
    for (const RehearsedSteps& part : run.value().parts) {
      if (part.first < second) {
        EXPECT_LE(part.end, second);
      }
      if (part.first == first) {
        found = true;
        EXPECT_EQ(part.end, second);
        EXPECT_EQ(part.remedy, "other routes of micro-batches");
        EXPECT_LT(part.step, whole_step_time(rehearsal.plan, rehearsal.model, slower).value());
      } else if (part.first < first) {
        EXPECT_EQ(part.plan, rehearsal.plan);
      }
    }
    EXPECT_EQ(found, between > 1);
    EXPECT_EQ(run.value().parts.back().end, 50 + between);
  }
}

// One pipeline of some stages with three layers each, which may move.
Rehearsal movable_rehearsal(int32_t stages) {
  Shape shape;
  shape.stages = stages;
  shape.layers = 3 * stages;
  shape.micros = 4;
  shape.order = "1f1b";
  Rehearsal rehearsal;
  rehearsal.plan = with_fine_stages(make_plan(shape).value()).value();
  Layer layer{.forward = kMillisecond, .backward_input = 2 * kMillisecond};
  layer.parameters = {1'000'000};
  rehearsal.model.layers.assign(static_cast<size_t>(shape.layers), layer);
  rehearsal.healthy = uniform_cluster(stages, {kMillisecond / 10, 1e9});
  rehearsal.layers = true;
  return rehearsal;
}

// All is well for 20 steps; then worker 1 becomes slow, and `between` steps later the link as well.
Rehearsal two_troubles(int64_t between) {
  Rehearsal rehearsal = movable_rehearsal(2);
  Cluster slow = rehearsal.healthy, both = slow;
  slow.workers[1].speed = both.workers[1].speed = 0.3;
  both.exceptions[{{0}, {1}}] = both.exceptions[{{1}, {0}}] = {2 * kMillisecond, 1e9};
  rehearsal.episodes = {{rehearsal.healthy, 20}, {slow, between}, {both, 40}};
  return rehearsal;
}

// Layers begin to move for the first trouble, and arrive although the next one has begun. Only then
// the run decides about that one.
TEST(Rehearse, LayersThatMoveArriveAfterTheNextTroubleHasBegun) {
  for (const int64_t between : {int64_t{2}, int64_t{5}, int64_t{7}, int64_t{9}}) {
    SCOPED_TRACE(between);
    const Rehearsal rehearsal = two_troubles(between);
    const auto run = rehearse(rehearsal);
    ASSERT_TRUE(run.ok()) << run.error().message;
    const int64_t begins = 20 + kStepsOfAReaction, arrives = begins + kStepsOfAMove;
    const RehearsedSteps* before = nullptr;
    int64_t end = 0;
    for (const RehearsedSteps& part : run.value().parts) {
      EXPECT_EQ(part.first, end);
      end = part.end;
      const bool moves = part.first >= begins && part.end <= arrives;
      EXPECT_TRUE(moves || part.first < begins || part.first >= arrives) << part.first;
      if (part.first < arrives) {
        EXPECT_EQ(part.plan, rehearsal.plan);
      } else if (part.first == arrives) {
        EXPECT_NE(part.plan.stages, rehearsal.plan.stages);
        EXPECT_GT(part.change, Duration{});
      } else if (part.first < arrives + 4) {
        EXPECT_EQ(part.plan, before->plan) << part.first;
      }
      before = &part;
    }
    EXPECT_EQ(end, 60 + between);
  }
}

// Nothing is in force sooner than a run could have it, and each move of layers is paid for.
TEST(Rehearse, TheBestInHindsightReactsAsLate) {
  for (const int64_t between : {int64_t{1}, int64_t{3}, int64_t{8}, int64_t{30}}) {
    SCOPED_TRACE(between);
    const Rehearsal rehearsal = two_troubles(between);
    const auto run = rehearse(rehearsal), best = best_in_hindsight(rehearsal);
    ASSERT_TRUE(run.ok() && best.ok());
    EXPECT_LE(best.value().total_ms, run.value().total_ms);
    const RehearsedSteps* before = nullptr;
    for (const RehearsedSteps& part : best.value().parts) {
      if (part.first < 20 + kStepsOfAReaction) {
        EXPECT_EQ(part.plan, rehearsal.plan);
      }
      if (before != nullptr && part.plan.stages != before->plan.stages) {
        EXPECT_GE(part.first, 20 + kStepsOfAReaction + kStepsOfAMove);
        EXPECT_GT(part.change, Duration{});
      }
      before = &part;
    }
    EXPECT_NE(before->plan.stages, rehearsal.plan.stages) << "moving pays";
    EXPECT_EQ(before->end, 60 + between);
  }
}

// Two workers have changed places, so that a slow link carries nothing. Then another link is slow,
// and the run does not notice that the first one is well again, and would be better used.
TEST(Rehearse, ALinkWithoutMessagesIsNotMeasured) {
  Rehearsal rehearsal = movable_rehearsal(3);
  const auto slow = [](Cluster cluster, int32_t from) {
    cluster.exceptions[{{from}, {from + 1}}] = {10 * kMillisecond, 1e9};
    cluster.exceptions[{{from + 1}, {from}}] = {10 * kMillisecond, 1e9};
    return cluster;
  };
  const Cluster& healthy = rehearsal.healthy;
  rehearsal.episodes = {{healthy, 20},
                        {slow(healthy, 1), 30},
                        {slow(slow(healthy, 0), 1), 30},
                        {slow(healthy, 0), 60}};
  const auto run = rehearse(rehearsal), best = best_in_hindsight(rehearsal);
  ASSERT_TRUE(run.ok() && best.ok());
  const std::vector<RehearsedSteps>& parts = run.value().parts;
  const auto at = [&](int64_t step) {
    return *std::find_if(parts.begin(), parts.end(), [&](const RehearsedSteps& part) {
      return part.first <= step && step < part.end;
    });
  };
  EXPECT_NE(at(49).plan.stages, rehearsal.plan.stages) << "two workers have changed places";
  EXPECT_EQ(at(139).plan, at(79).plan);
  EXPECT_EQ(at(139).step, at(79).step);
  EXPECT_LT(best.value().parts.back().step, at(139).step);
}

}  // namespace
}  // namespace tenuto
