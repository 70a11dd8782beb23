#include "adapt/layout/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Model random_model(Random& random, int32_t layers) {
  Model model;
  model.layers.resize(at(layers));
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::microseconds(100 + random.below(3000));
    layer.backward_input = std::chrono::microseconds(100 + random.below(5000));
    layer.activation = layer.stash = {1000 + random.below(4'000'000)};
    layer.parameters = {random.below(20'000'000)};
  }
  return model;
}

Cluster random_cluster(Random& random, int32_t workers) {
  Cluster cluster = uniform_cluster(workers, {});
  const Link fast{{}, 1e9 * (1 + 10 * random.uniform())}, slow{{}, 1e8 * (1 + random.uniform())};
  cluster.between = {{fast, slow}, {slow, fast}};
  for (int32_t w = 0; w < workers; ++w) {
    cluster.place.push_back(static_cast<int32_t>(random.below(2)));
    if (random.below(4) == 0) cluster.workers[at(w)].speed = 0.5;
  }
  return cluster;
}

// Every layer once, in order, and no worker twice or dead.
void expect_whole(const Layout& layout, const Model& model, const Cluster& cluster) {
  int32_t layer = 0;
  std::set<WorkerId> seen;
  for (const Stage& stage : layout) {
    EXPECT_EQ(stage.layer_first, layer);
    EXPECT_GT(stage.layer_end, stage.layer_first);
    layer = stage.layer_end;
    EXPECT_FALSE(stage.holders.empty());
    for (const WorkerId holder : stage.holders) {
      EXPECT_TRUE(seen.insert(holder).second);
      EXPECT_TRUE(cluster.workers[at(holder.value)].alive);
    }
  }
  EXPECT_EQ(layer, static_cast<int32_t>(model.layers.size()));
}

// An effort that is too small for a search over all layouts.
constexpr LayoutEffort kSmall{300'000, 50};

TEST(LayoutSearchTest, IsConsistentAndNeverAboveAnotherPlanner) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const Model model = random_model(random, static_cast<int32_t>(2 + random.below(10)));
    Cluster cluster = random_cluster(random, static_cast<int32_t>(2 + random.below(6)));
    if (random.below(4) == 0) cluster.workers.back().alive = false;
    LayoutSettings settings;
    settings.micros = static_cast<int32_t>(1 + random.below(12));
    settings.half_duplex = random.below(3) == 0;
    const LayoutProblem problem(model, cluster, settings);
    const auto found = search_layout(problem, kSmall);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const PricedLayout& best = found.value().best;
    expect_whole(best.layout, model, cluster);
    const double step = best.schedule.makespan, almost = 1 + 1e-9;
    EXPECT_LE(found.value().lower_bound, step * almost);
    const LayoutLoads loads = row_split_loads(problem, best.layout);
    EXPECT_LE(least_makespan(loads), step * almost);
    const auto again = replay_blocks(loads, best.schedule.order, best.schedule.link_order);
    ASSERT_TRUE(again.has_value());
    EXPECT_NEAR(again->makespan, step, 1e-9 * step);
    for (const PlannerCard& card : planner_cards()) {
      if (card.planner == Planner::Tenuto) continue;
      const auto other = baseline_layout(problem, card.planner);
      ASSERT_TRUE(other.ok()) << other.error().message;
      EXPECT_LE(step, other.value().schedule.makespan * almost) << card.name;
    }
    for (const Layout& layout : found.value().shapes) expect_whole(layout, model, cluster);
    EXPECT_EQ(found.value().shapes.front(), best.layout);
    const auto same = search_layout(problem, kSmall);
    EXPECT_EQ(same.value().best.layout, best.layout);
  }
}

TEST(LayoutSearchTest, AFastDeviceGetsMoreWork) {
  Model model;
  model.layers.resize(12);
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::milliseconds(1);
    layer.backward_input = std::chrono::milliseconds(2);
    layer.activation = {1000};
    layer.parameters = {100'000'000};
  }
  Cluster cluster = uniform_cluster(2, {{}, 1e9});
  cluster.workers[1].speed = 0.5;
  LayoutSettings settings;
  settings.micros = 32;
  const LayoutProblem problem(model, cluster, settings);
  const auto found = search_layout(problem);
  ASSERT_TRUE(found.ok()) << found.error().message;
  const Layout& layout = found.value().best.layout;
  ASSERT_EQ(layout.size(), 2U);
  for (const Stage& stage : layout) {
    EXPECT_EQ(stage.layer_end - stage.layer_first, stage.holders.front().value == 0 ? 8 : 4);
  }
}

TEST(LayoutSearchTest, MemoryIsKeptOrRefused) {
  int32_t fit = 0, refused = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const Model model = random_model(random, static_cast<int32_t>(2 + random.below(6)));
    Cluster cluster = random_cluster(random, static_cast<int32_t>(2 + random.below(3)));
    for (Worker& worker : cluster.workers) worker.memory = {15'000'000 + random.below(200'000'000)};
    LayoutSettings settings;
    settings.micros = static_cast<int32_t>(1 + random.below(6));
    const LayoutProblem problem(model, cluster, settings);
    const auto found = search_layout(problem, kSmall);
    if (!found.ok()) {
      ++refused;
      EXPECT_NE(found.error().message.find("bytes more than worker"), std::string::npos)
          << found.error().message;
      continue;
    }
    ++fit;
    const PricedLayout& best = found.value().best;
    EXPECT_LT(memory_shortage(problem, best.layout).stage, 0);
    for (size_t n = 0; n < best.layout.size(); ++n) {
      for (const WorkerId holder : best.layout[n].holders) {
        EXPECT_LE(stage_memory(problem, best.layout[n], best.schedule.in_flight[n]),
                  problem.memory(problem.device(holder)));
      }
    }
  }
  EXPECT_GT(fit, 10);
  EXPECT_GT(refused, 10);
}

TEST(LayoutSearchTest, ASearchWithoutTimeStillHasALayout) {
  Random random(7);
  const Model model = random_model(random, 30);
  const Cluster cluster = random_cluster(random, 12);
  const LayoutProblem problem(model, cluster, {16});
  Watch watch;
  watch.end();
  const auto found = search_layout(problem, {}, &watch);
  ASSERT_TRUE(found.ok()) << found.error().message;
  expect_whole(found.value().best.layout, model, cluster);
  EXPECT_LE(found.value().lower_bound, found.value().best.schedule.makespan);
}

// Whole nodes are the units of a large cluster.
TEST(LayoutSearchTest, ALargeClusterOfNodes) {
  Random random(3);
  const Model model = random_model(random, 40);
  Cluster cluster = uniform_cluster(512, {});
  const Link inside{{}, 5e10}, between{{}, 6e9};
  cluster.between.assign(64, std::vector<Link>(64, between));
  for (int32_t node = 0; node < 64; ++node) cluster.between[at(node)][at(node)] = inside;
  for (int32_t w = 0; w < 512; ++w) cluster.place.push_back(w / 8);
  const LayoutProblem problem(model, cluster, {64});
  const auto found = search_layout(problem, kSmall);
  ASSERT_TRUE(found.ok()) << found.error().message;
  expect_whole(found.value().best.layout, model, cluster);
  EXPECT_LE(found.value().lower_bound, found.value().best.schedule.makespan);
}

}  // namespace
}  // namespace tenuto
