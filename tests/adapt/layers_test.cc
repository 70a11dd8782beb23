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

Duration price_of(const Plan& plan, const Model& model, const Cluster& now) {
  PriceOptions options;
  options.lower_bound = false;
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

constexpr MoveTerms kLong{.lasted = 1'000'000, .left = 1'000'000};

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
    const auto found = find_layer_moves(plan, model, now, kLong);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const Duration best = best_cut(plan, model, now, workers);
    const Duration after = found.value().after;
    EXPECT_GE(after, best);
    const double ratio = to_milliseconds(after) / to_milliseconds(best);
    EXPECT_LE(ratio, 1.2) << "seed " << seed << ": " << found.value().reason;
    worst = std::max(worst, ratio);
    if (found.value().moves.empty()) continue;
    ASSERT_TRUE(check(found.value().plan).ok());
    EXPECT_EQ(price_of(found.value().plan, model, now), after);
    std::vector<Stage> stages = plan.stages;
    move_layers(stages, found.value().moves);
    EXPECT_EQ(stages, found.value().plan.stages);
  }
  std::printf("    at worst %.3f of the best cut\n", worst);
}

TEST(Layers, StayWhereTheyAreInAHealthyCluster) {
  const Plan plan = plan_of(3, 2, 9, 4);
  const auto found =
      find_layer_moves(plan, model_of(plan), uniform_cluster(6, {kMillisecond / 10, 1e9}), kLong);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found.value().moves.empty());
  EXPECT_EQ(found.value().pays_after, -1);
  EXPECT_EQ(found.value().reason, "no move of layers shortens a step by 2 %");
}

TEST(Layers, GoBackWhenTheWorkerIsWell) {
  const Plan plan = plan_of(3, 1, 12, 6);
  const Model model = model_of(plan);
  Cluster slow = uniform_cluster(3, {kMillisecond / 10, 1e9});
  slow.workers[1].speed = 0.5;
  const LayerMoves away = find_layer_moves(plan, model, slow, kLong).value();
  ASSERT_FALSE(away.moves.empty());
  for (const LayerMove& move : away.moves) EXPECT_EQ(move.from, WorkerId{1});
  const LayerMoves back =
      find_layer_moves(away.plan, model, uniform_cluster(3, {kMillisecond / 10, 1e9}), kLong)
          .value();
  EXPECT_EQ(back.plan.stages, plan.stages);
}

// The peers of a dead worker have twice the work: they give layers to their neighbours.
TEST(Layers, LeaveThePeersOfADeadWorker) {
  const Plan whole = plan_of(3, 2, 12, 6);
  Plan plan = without_workers(whole, {true, false, true, true, true, true}).value();
  Cluster now = uniform_cluster(6, {kMillisecond / 10, 1e9});
  now.workers[1].alive = false;
  const LayerMoves found = find_layer_moves(plan, model_of(plan), now, kLong).value();
  ASSERT_FALSE(found.moves.empty());
  for (const LayerMove& move : found.moves) EXPECT_NE(move.to, WorkerId{1});
  EXPECT_LT(to_milliseconds(found.after), 0.9 * to_milliseconds(found.before));
}

TEST(Layers, MoveOnceThatPays) {
  const Plan plan = plan_of(3, 1, 12, 6);
  const Model model = model_of(plan);
  Cluster now = uniform_cluster(3, {{}, 1000.0});  // three seconds for the state of a layer
  now.workers[0].speed = 0.5;
  const LayerMoves soon = find_layer_moves(plan, model, now, {.lasted = 5, .left = 1000}).value();
  EXPECT_TRUE(soon.moves.empty());
  ASSERT_GT(soon.pays_after, 5);
  const int64_t then = soon.pays_after;
  EXPECT_TRUE(
      find_layer_moves(plan, model, now, {.lasted = then - 1, .left = 1000}).value().moves.empty());
  EXPECT_FALSE(
      find_layer_moves(plan, model, now, {.lasted = then, .left = 1000}).value().moves.empty());
  EXPECT_TRUE(
      find_layer_moves(plan, model, now, {.lasted = 1000, .left = 5}).value().moves.empty());
}

TEST(Layers, LeaveEachWorkerALayer) {
  const Plan plan = plan_of(2, 1, 4, 4);
  Cluster now = uniform_cluster(2, {});
  now.workers[0].speed = 0.05;
  const LayerMoves found = find_layer_moves(plan, model_of(plan), now, kLong).value();
  EXPECT_EQ(stages_of(found.plan.stages, {0}).size(), 1U);
}

}  // namespace
}  // namespace tenuto
