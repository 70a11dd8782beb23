// Moves of layers: what the search finds, compared with all ways to cut the layers, and when moves
// pay.
#include "adapt/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/fine_stages.h"
#include "plan/make_plan.h"
#include "plan/routed.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

Plan plan_of(int32_t workers, int32_t pipelines, int32_t layers, int32_t micros) {
  Shape shape;
  shape.stages = workers;
  shape.pipelines = pipelines;
  shape.layers = layers;
  shape.micros = micros;
  shape.order = "1f1b";
  const auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return with_fine_stages(plan.value()).value();
}

Model model_of(const Plan& plan) {
  Model model;
  Layer layer{.forward = kMillisecond, .backward_input = 2 * kMillisecond};
  layer.parameters = {1000};
  model.layers.assign(plan.stages.size(), layer);
  return model;
}

// One step of a run, priced for more steps than the search prices.
Duration price_of(const Plan& plan, const Model& model, const Cluster& now) {
  PriceOptions options;
  options.lower_bound = false;
  options.in_turn = true;
  const auto priced = price(plan, model, now, options);
  EXPECT_TRUE(priced.ok());
  return priced.value().period;
}

// The shortest step of all ways to give each worker of one pipeline a row of layers.
Duration best_cut(const Plan& plan, const Model& model, const Cluster& now, int32_t workers) {
  const auto layers = static_cast<int32_t>(plan.stages.size());
  std::optional<Duration> best;
  std::vector<std::vector<WorkerId>> holders;
  const std::function<void(int32_t)> cut = [&](int32_t worker) {
    const auto placed = static_cast<int32_t>(holders.size());
    if (worker == workers) {
      if (placed < layers) return;
      const Duration time = price_of(with_holders(plan, holders), model, now);
      if (!best || time < *best) best = time;
      return;
    }
    for (int32_t more = 1; placed + more <= layers; ++more) {
      for (int32_t i = 0; i < more; ++i) holders.push_back({{worker}});
      cut(worker + 1);
      holders.resize(static_cast<size_t>(placed));
    }
  };
  cut(0);
  return *best;
}

// The layout with the shortest step that the search passes; the plan as it is if there is none.
LayerLayout shortest_of(const Plan& plan, const Model& model, const Cluster& now) {
  LayerLayout best{{}, plan, price_of(plan, model, now), {}};
  auto layouts = find_layer_layouts(plan, model, now);
  EXPECT_TRUE(layouts.ok()) << layouts.error().message;
  for (LayerLayout& layout : layouts.value()) {
    EXPECT_GT(layout.cost, Duration{});
    if (layout.step < best.step) best = std::move(layout);
  }
  return best;
}

TEST(Layers, MovesAreNearlyAsGoodAsTheBestCut) {
  double worst = 1;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const auto workers = static_cast<int32_t>(2 + random.below(3));
    const int32_t layers = workers * static_cast<int32_t>(2 + random.below(2));
    const Plan plan = plan_of(workers, 1, layers, static_cast<int32_t>(3 + random.below(4)));
    const Model model = model_of(plan);
    Cluster now = uniform_cluster(workers, {kMillisecond / 10, 1e9});
    now.workers[static_cast<size_t>(random.below(workers))].speed = 0.4 + 0.1 * random.below(4);
    const LayerLayout found = shortest_of(plan, model, now);
    const Duration best = best_cut(plan, model, now, workers);
    const Duration after = found.step;
    EXPECT_GE(after, best);
    const double ratio = to_milliseconds(after) / to_milliseconds(best);
    EXPECT_LE(ratio, 1.2) << "seed " << seed;
    worst = std::max(worst, ratio);
    if (found.moves.empty()) continue;
    ASSERT_TRUE(check(found.plan).ok());
    EXPECT_EQ(price_of(found.plan, model, now), after);
    std::vector<Stage> stages = plan.stages;
    move_layers(stages, found.moves);
    EXPECT_EQ(stages, found.plan.stages);
  }
  std::printf("    at worst %.3f of the best cut\n", worst);
}

TEST(Layers, StayWhereTheyAreInAHealthyCluster) {
  const Plan plan = plan_of(3, 2, 9, 4);
  const Cluster healthy = uniform_cluster(6, {kMillisecond / 10, 1e9});
  EXPECT_TRUE(find_layer_layouts(plan, model_of(plan), healthy).value().empty());
  EXPECT_TRUE(find_swaps(plan, model_of(plan), healthy, 100).value().empty());
}

TEST(Layers, GoBackWhenTheWorkerIsWell) {
  const Plan plan = plan_of(3, 1, 12, 6);
  const Model model = model_of(plan);
  const Cluster healthy = uniform_cluster(3, {kMillisecond / 10, 1e9});
  Cluster slow = healthy;
  slow.workers[1].speed = 0.5;
  const LayerLayout away = shortest_of(plan, model, slow);
  ASSERT_FALSE(away.moves.empty());
  for (const LayerMove& move : away.moves) EXPECT_EQ(move.from, WorkerId{1});
  EXPECT_EQ(shortest_of(away.plan, model, healthy).plan.stages, plan.stages);
}

// The peers of a dead worker have twice the work: they give layers to their neighbours.
TEST(Layers, LeaveThePeersOfADeadWorker) {
  const Plan whole = plan_of(3, 2, 12, 6);
  const Plan plan = without_workers(whole, {true, false, true, true, true, true}).value();
  Cluster now = uniform_cluster(6, {kMillisecond / 10, 1e9});
  now.workers[1].alive = false;
  const Model model = model_of(plan);
  const LayerLayout found = shortest_of(plan, model, now);
  ASSERT_FALSE(found.moves.empty());
  for (const LayerMove& move : found.moves) EXPECT_NE(move.to, WorkerId{1});
  EXPECT_LT(to_milliseconds(found.step), 0.9 * to_milliseconds(price_of(plan, model, now)));
}

TEST(Layers, LeaveEachWorkerALayer) {
  const Plan plan = plan_of(2, 1, 4, 4);
  Cluster now = uniform_cluster(2, {kMillisecond / 10, 1e9});
  now.workers[0].speed = 0.05;
  const LayerLayout found = shortest_of(plan, model_of(plan), now);
  EXPECT_EQ(stages_of(found.plan.stages, {0}).size(), 1U);
}

// In one pipeline each boundary has one link. If the link of a boundary is slow, workers change
// places, so that no boundary has it.
TEST(Layers, SwapsLeaveASlowLinkUnused) {
  const Plan plan = plan_of(4, 1, 8, 4);
  const Model model = model_of(plan);
  Cluster now = uniform_cluster(4, {kMillisecond / 10, 1e9});
  const Duration healthy = price_of(plan, model, now);
  now.exceptions[{{1}, {2}}] = now.exceptions[{{2}, {1}}] = {20 * kMillisecond, 1e9};
  const Duration slow = price_of(plan, model, now);
  const auto swaps = find_swaps(plan, model, now, 100).value();
  ASSERT_FALSE(swaps.empty());
  Duration best = slow;
  for (const LayerLayout& swap : swaps) {
    ASSERT_TRUE(check(swap.plan).ok());
    std::vector<Stage> stages = plan.stages;
    move_layers(stages, swap.moves);
    EXPECT_EQ(stages, swap.plan.stages);
    EXPECT_EQ(price_of(swap.plan, model, now), swap.step);
    best = std::min(best, swap.step);
  }
  EXPECT_GT(to_milliseconds(slow), 1.5 * to_milliseconds(healthy));
  EXPECT_LT(to_milliseconds(best), 1.05 * to_milliseconds(healthy));
  EXPECT_LE(find_swaps(plan, model, now, 2).value().size(), 2U);
}

// The slow worker of an unequal cut changes places with the one that has the fewest layers.
TEST(Layers, SwapsGiveASlowWorkerTheLightestStage) {
  Plan plan = plan_of(2, 1, 6, 6);
  const Model model = model_of(plan);
  std::vector<std::vector<WorkerId>> holders(6, {WorkerId{0}});
  holders[5] = {WorkerId{1}};
  plan = with_holders(plan, holders);
  Cluster now = uniform_cluster(2, {kMillisecond / 10, 1e9});
  now.workers[0].speed = 0.5;
  const auto swaps = find_swaps(plan, model, now, 100).value();
  ASSERT_EQ(swaps.size(), 1U);
  EXPECT_EQ(stages_of(swaps[0].plan.stages, {0}).size(), 1U);
  EXPECT_EQ(stages_of(swaps[0].plan.stages, {1}).size(), 5U);
}

// A weight that the first and the last layer share has one place in a worker: their workers do not
// change places.
TEST(Layers, SwapsKeepASharedWeightOnTwoWorkers) {
  Shape shape;
  shape.stages = 2;
  shape.layers = 4;
  shape.micros = 4;
  shape.tied = true;
  const Plan plan = with_fine_stages(make_plan(shape).value()).value();
  Cluster now = uniform_cluster(2, {kMillisecond / 10, 1e9});
  now.workers[0].speed = 0.5;
  EXPECT_TRUE(find_swaps(plan, model_of(plan), now, 100).value().empty());
}

}  // namespace
}  // namespace tenuto
