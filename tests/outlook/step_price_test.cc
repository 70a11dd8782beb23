// Steps in a cluster with troubles, against the simulator and against bounds of the whole cluster.
#include "outlook/step_price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "adapt/mesh.h"
#include "adapt/mesh_bound.h"
#include "base/check.h"
#include "base/random.h"
#include "plan/make_plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto::outlook {
namespace {

using std::chrono::milliseconds;

constexpr Remedies kReroute{true, false, false, false, false};
constexpr Remedies kRebalance{true, true, false, false, false};

StepSetup setup_of(int32_t micros) {
  StepSetup setup;
  setup.micros = micros;
  setup.forward = milliseconds(10);
  setup.backward_input = milliseconds(12);
  setup.backward_weight = milliseconds(7);
  setup.link = milliseconds(2);
  return setup;
}

Mark dead(int32_t stage) { return {stage, TroubleKind::DeadWorker, 0}; }
Mark slow(int32_t stage, double factor) { return {stage, TroubleKind::SlowWorker, factor}; }
Mark slow_link(int32_t stage, double factor) { return {stage, TroubleKind::SlowLink, factor}; }

// The whole cluster with the same step as the simulator sees it.
struct Whole {
  Plan plan;
  Model model;
  Cluster cluster;

  Whole(const ClusterShape& shape, const StepSetup& setup) {
    Shape of;
    of.stages = of.layers = shape.stages;
    of.pipelines = shape.pipelines;
    of.micros = setup.micros;
    of.split_backward = true;
    auto made = make_plan(of);
    CHECK(made.ok(), made.ok() ? "" : made.error().message);
    plan = std::move(made).value();
    for (int32_t s = 0; s < shape.stages; ++s) {
      Layer layer;
      layer.forward = setup.forward;
      layer.backward_input = setup.backward_input;
      layer.backward_weight = setup.backward_weight;
      model.layers.push_back(layer);
    }
    cluster = uniform_cluster(shape.stages * shape.pipelines, Link{setup.link, 0});
  }

  static PriceOptions options() {
    PriceOptions plain;
    plain.update = false;
    plain.lower_bound = false;
    return plain;
  }

  Duration time() const {
    const auto timeline = price(plan, model, cluster, options());
    CHECK(timeline.ok(), timeline.ok() ? "" : timeline.error().message);
    return timeline.value().makespan;
  }
};

TEST(StepPrice, AnUndisturbedStepIsTheSimulatorsAlways) {
  for (const int32_t stages : {1, 2, 5}) {
    for (const int32_t micros : {1, 3, 9}) {
      const ClusterShape shape{stages, 3};
      const StepSetup setup = setup_of(micros);
      const Duration time = Whole(shape, setup).time();
      for (const Remedies& remedies :
           {Remedies{}, kReroute, kRebalance, Remedies{true, true, true, true, true}}) {
        StepPrices prices(shape, setup, remedies);
        EXPECT_EQ(prices.of({}, {})->time, time) << stages << " x " << micros;
      }
    }
  }
}

TEST(StepPrice, SlowWorkersAndLinksThatAreLeftAloneAreTheSimulators) {
  const ClusterShape shape{4, 3};
  const StepSetup setup = setup_of(7);
  Whole whole(shape, setup);
  whole.cluster.workers[2].speed = 0.5;       // pipeline 0, stage 2
  whole.cluster.workers[4 + 1].speed = 0.25;  // pipeline 1, stage 1
  const WorkerId above{8}, below{9};          // pipeline 2, stages 0 and 1
  whole.cluster.exceptions[std::pair(above, below)] = Link{milliseconds(30), 0};
  whole.cluster.exceptions[std::pair(below, above)] = Link{milliseconds(30), 0};
  StepPrices prices(shape, setup, {});
  const Condition condition = {{slow(2, 2)}, {slow(1, 4)}, {slow_link(0, 15)}};
  EXPECT_EQ(prices.of(condition, {})->time, whole.time());
  // The slow link alone, too, although other pipelines are faster.
  Whole linked(shape, setup);
  linked.cluster.exceptions = whole.cluster.exceptions;
  EXPECT_EQ(prices.of({{slow_link(0, 15)}}, {})->time, linked.time());
}

TEST(StepPrice, WholePipelinesDoTheWorkOfOthersAsTheSimulatorSays) {
  StepPrices prices({3, 3}, setup_of(4), {});
  EXPECT_EQ(prices.of({{dead(1)}}, {})->time, Whole({3, 2}, setup_of(6)).time());
  EXPECT_EQ(prices.of({{dead(0)}, {dead(1), dead(2)}}, {})->time,
            Whole({3, 1}, setup_of(12)).time());
  EXPECT_FALSE(prices.of({{dead(0)}, {dead(1)}, {dead(2)}}, {}).has_value());
}

// No routing of the whole cluster is faster than its bound, and a price is a time that one pipeline
// with equal loads needs.
TEST(StepPrice, ReRoutedStepsAreNotBelowTheBoundOfTheWholeCluster) {
  const ClusterShape shape{4, 4};
  const StepSetup setup = setup_of(8);
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    Whole whole(shape, setup);
    Condition condition;
    for (int32_t p = 0; p < 3; ++p) {  // one pipeline stays whole
      const auto stage = static_cast<int32_t>(random.below(4));
      condition.push_back({dead(stage)});
      whole.cluster.workers[static_cast<size_t>(4 * p + stage)].alive = false;
    }
    std::sort(condition.begin(), condition.end());
    const auto mesh = mesh_of(whole.plan, whole.model, whole.cluster, Whole::options());
    ASSERT_TRUE(mesh.ok()) << mesh.error().message;
    StepPrices prices(shape, setup, kReroute);
    const auto cost = prices.of(condition, {});
    ASSERT_TRUE(cost.has_value());
    EXPECT_GE(cost->time, MeshBound(mesh.value()).least());
    EXPECT_GE(cost->time, cost->bound);
  }
}

TEST(StepPrice, AStageWithoutWorkersStops) {
  StepPrices prices({2, 2}, setup_of(4), kReroute);
  EXPECT_TRUE(prices.of({{dead(0)}, {dead(1)}}, {}).has_value());
  EXPECT_FALSE(prices.of({{dead(1)}, {dead(1)}}, {}).has_value());
}

TEST(StepPrice, SlowWorkersGetFewer) {
  const ClusterShape shape{3, 8};
  const StepSetup setup = setup_of(8);
  StepPrices alone(shape, setup, kReroute), shared(shape, setup, kRebalance);
  const Duration healthy = alone.of({}, {})->time;
  const Condition condition = {{slow(1, 4)}};
  EXPECT_GT(alone.of(condition, {})->time, 2 * healthy);
  // The others run 9 each, the slow one 2: 7 x 9 + 2 = 65 of 64.
  EXPECT_LT(shared.of(condition, {})->time, healthy * 5 / 4);
  EXPECT_GT(shared.of(condition, {})->time, healthy);
  // Whole pipelines, when micro-batches do not leave theirs.
  StepPrices whole(shape, setup, {false, true, false, false, false});
  EXPECT_EQ(whole.of(condition, {})->time, Whole({3, 8}, setup_of(9)).time());
}

TEST(StepPrice, MessagesAvoidASlowLink) {
  StepSetup setup = setup_of(8);
  setup.cross = milliseconds(6);
  StepPrices alone({3, 2}, setup, {}), around({3, 2}, setup, kRebalance);
  EXPECT_EQ(around.of({{slow_link(1, 20)}}, {}), around.of({{slow_link(1, 3)}}, {}));
  EXPECT_LT(around.of({{slow_link(1, 20)}}, {})->time, alone.of({{slow_link(1, 20)}}, {})->time);
}

TEST(StepPrice, ForwardsAheadAbsorbADelay) {
  StepSetup setup = setup_of(12);
  setup.spare = 8;
  StepPrices fixed({4, 2}, setup, {}), ordered({4, 2}, setup, {false, false, true, false, false});
  EXPECT_LT(ordered.of({{slow_link(0, 15)}}, {})->time, fixed.of({{slow_link(0, 15)}}, {})->time);
  EXPECT_EQ(ordered.of({}, {}), fixed.of({}, {}));
}

TEST(StepPrice, LayersMoveFromStagesThatMissWorkers) {
  StepSetup setup = setup_of(8);
  setup.layers = 4;
  StepPrices prices({3, 2}, setup, {true, true, false, true, false});
  EXPECT_TRUE(prices.best_layers({}).empty());
  const LayerCounts layers = prices.best_layers({{dead(0)}});
  EXPECT_EQ(layers, (LayerCounts{2, 5, 5}));
  EXPECT_LT(prices.of({{dead(0)}}, layers)->time, prices.of({{dead(0)}}, {})->time);
  EXPECT_GT(prices.of({}, layers)->time, prices.of({}, {})->time);
  // Equal shares, written out, cost the same as none given.
  EXPECT_EQ(prices.of({}, {4, 4, 4})->time, prices.of({}, {})->time);
}

TEST(StepPrice, PricesAreNotBelowTheirBounds) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    StepSetup setup = setup_of(1 + static_cast<int32_t>(random.below(9)));
    setup.spare = 4;
    setup.layers = 3;
    Condition condition;
    for (int32_t p = 0; p < 3; ++p) {
      const auto stage = static_cast<int32_t>(random.below(3));
      const auto kind = random.below(3);
      const double factor = 1 + static_cast<double>(random.below(20)) / 4;
      if (kind == 0) condition.push_back({dead(stage)});
      if (kind == 1) condition.push_back({slow(stage, factor)});
      if (kind == 2) condition.push_back({slow_link(stage % 2, factor)});
    }
    std::sort(condition.begin(), condition.end());
    const bool bit = random.below(2) == 0;
    StepPrices prices({3, 4}, setup, {random.below(2) == 0, bit, true, true, true});
    const auto cost = prices.of(condition, prices.best_layers(condition));
    ASSERT_TRUE(cost.has_value());
    EXPECT_GE(cost->time, cost->bound) << round;
  }
}

TEST(StepPrice, WhatIsRememberedIsWhatIsComputed) {
  const Condition condition = {{dead(1)}, {slow(0, 2), slow_link(0, 3)}};
  StepPrices with({3, 4}, setup_of(5), kReroute), without({3, 4}, setup_of(5), kReroute, false);
  const auto cost = with.of(condition, {});
  EXPECT_EQ(cost, without.of(condition, {}));
  const int64_t played = with.played();
  EXPECT_EQ(with.of(condition, {}), cost);
  EXPECT_EQ(with.played(), played);
}

TEST(StepPrice, AConditionDoesNotSayWhichPipelines) {
  const auto trouble = [](int32_t pipeline, int32_t stage, TroubleKind kind, double factor) {
    return Trouble{Duration{}, Duration{}, kind, pipeline, stage, factor};
  };
  const Condition condition = condition_of(
      {trouble(5, 1, TroubleKind::SlowWorker, 2), trouble(5, 1, TroubleKind::SlowWorker, 3),
       trouble(2, 0, TroubleKind::SlowWorker, 4), trouble(2, 0, TroubleKind::DeadWorker, 0)});
  EXPECT_EQ(condition, (Condition{{dead(0)}, {slow(1, 3)}}));
  EXPECT_EQ(condition, condition_of({trouble(0, 1, TroubleKind::SlowWorker, 3),
                                     trouble(1, 0, TroubleKind::DeadWorker, 0)}));
}

}  // namespace
}  // namespace tenuto::outlook
