// choose_sums(): chooses the all-reduce of each group, given which workers are late, by the price
// of the whole step.
#include "adapt/sums.h"

#include <gtest/gtest.h>

#include <cmath>

#include "adapt/adapt.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

constexpr Duration kOp = std::chrono::milliseconds(5);
constexpr int64_t kMebi = 1 << 20;

// Several pipelines, whose stages all-reduce `bytes` over links of 0.2 ms and 1 GB/s.
struct Situation {
  Plan plan;
  Model model;
  Cluster cluster;
  PriceOptions pricing;

  Duration price_of(const Plan& of) const {
    const auto priced = price(of, model, cluster, pricing);
    EXPECT_TRUE(priced.ok()) << (priced.ok() ? "" : priced.error().message);
    return priced.ok() ? priced.value().period : Duration{};
  }
  ChosenSums choose(double least_gain = 0.02) const {
    auto chosen = choose_sums(plan, model, cluster, pricing, least_gain);
    EXPECT_TRUE(chosen.ok()) << (chosen.ok() ? "" : chosen.error().message);
    return chosen.ok() ? std::move(chosen).value() : ChosenSums{plan, {}, {}, false, ""};
  }
  Summing summing(size_t group = 0) const { return plan.schedule.groups[group].summing; }
};

Situation situation_of(int32_t stages, int32_t pipelines, int64_t bytes, const std::string& name,
                       bool tied = false) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.pipelines = pipelines;
  shape.micros = 4;
  shape.dispatch = Dispatch::Ready;
  shape.all_reduce = name;
  shape.tied = tied;
  auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  Situation it{std::move(plan).value(), {}, {}, {}};
  Layer layer;
  layer.forward = layer.backward_input = layer.backward_weight = kOp;
  layer.parameters = {bytes};
  it.model.layers.assign(static_cast<size_t>(stages), layer);
  if (tied) it.model.tied = {bytes / 4};
  it.cluster = uniform_cluster(stages * pipelines, {std::chrono::microseconds(200), 1e9});
  it.pricing.lower_bound = false;
  it.pricing.in_turn = true;
  return it;
}

// Nothing is faster with two members, or with eight whose all-reduces take no time.
TEST(Sums, TheRingStaysWhereNothingIsFaster) {
  Situation two = situation_of(1, 2, 64 * kMebi, "auto");
  Situation free = situation_of(1, 8, 64 * kMebi, "auto");
  free.cluster = uniform_cluster(8, {});
  free.cluster.workers[3].speed = 0.7;
  for (const Situation& it : {two, free}) {
    const ChosenSums chosen = it.choose();
    EXPECT_FALSE(chosen.changed) << chosen.reason;
    EXPECT_EQ(chosen.plan, it.plan);
    EXPECT_EQ(chosen.price, it.price_of(it.plan));
  }
}

TEST(Sums, HalvingIsChosenWhereRoundsAreExpensive) {
  const Situation it = situation_of(1, 8, 64 * 1024, "auto");
  const ChosenSums chosen = it.choose();
  ASSERT_TRUE(chosen.changed);
  EXPECT_EQ(chosen.plan.schedule.groups[0].summing, (Summing{"halving", {}, 0}));
  EXPECT_EQ(chosen.reason.find("sums of stage 0: halving, saves "), 0u) << chosen.reason;
}

TEST(Sums, OneSlowWorkerIsWaitedFor) {
  Situation it = situation_of(1, 8, 16 * kMebi, "auto");
  it.cluster.workers[3].speed = 0.7;
  const ChosenSums chosen = it.choose();
  ASSERT_TRUE(chosen.changed);
  const Summing& summing = chosen.plan.schedule.groups[0].summing;
  EXPECT_EQ(summing.algorithm, "late-one");
  EXPECT_EQ(summing.late, WorkerId{3});
  EXPECT_EQ(chosen.before, it.price_of(it.plan));
  EXPECT_EQ(chosen.price, it.price_of(chosen.plan));
  EXPECT_LT(chosen.price, chosen.before);
  // 4 micro-batches of 15 ms at 0.7 of the speed take 3 / 7 of 60 ms longer.
  EXPECT_EQ(
      chosen.reason,
      cat("sums of stage 0 wait for worker 3, 25.7 ms late: late-one, k = ", summing.chunks,
          ", saves ", std::round(10 * to_milliseconds(chosen.before - chosen.price)) / 10, " ms"));
  // choose_sums() keeps its own answer; when another worker becomes slow, it changes it.
  it.plan = chosen.plan;
  EXPECT_FALSE(it.choose().changed);
  it.cluster.workers[3].speed = 1;
  it.cluster.workers[5].speed = 0.7;
  const ChosenSums other = it.choose();
  ASSERT_TRUE(other.changed);
  EXPECT_EQ(other.plan.schedule.groups[0].summing.late, WorkerId{5});
}

TEST(Sums, WithoutItsLateMemberAGroupUsesTheRing) {
  Situation it = situation_of(1, 4, 16 * kMebi, "auto");
  it.cluster.workers[3].speed = 0.6;
  const Plan late = it.choose().plan;
  ASSERT_EQ(late.schedule.groups[0].summing.algorithm, "late-one");
  const auto without_it = without_workers(late, {true, true, true, false});
  ASSERT_TRUE(without_it.ok());
  EXPECT_EQ(without_it.value().schedule.groups[0].summing, Summing{});
  EXPECT_EQ(without_it.value().schedule.all_reduce, "auto");
  const auto without_another = without_workers(late, {true, false, true, true});
  ASSERT_TRUE(without_another.ok());
  EXPECT_EQ(without_another.value().schedule.groups[0].summing.late, WorkerId{3});
}

TEST(Sums, ANamedAllReduceIsNotReplaced) {
  for (const char* name : {"ring", "halving", "tree", "direct"}) {
    Situation it = situation_of(1, 4, 16 * kMebi, name);
    it.cluster.workers[3].speed = 0.5;
    EXPECT_FALSE(it.choose().changed) << name;
  }
  // If late-one is chosen by name it stays, but its late worker is updated.
  Situation it = situation_of(1, 8, 16 * kMebi, "late-one");
  EXPECT_EQ(it.summing().late, WorkerId{7});
  it.cluster.workers[2].speed = 0.6;
  const ChosenSums chosen = it.choose();
  ASSERT_TRUE(chosen.changed);
  EXPECT_EQ(chosen.plan.schedule.groups[0].summing.late, WorkerId{2});
}

TEST(Sums, AGainBelowTheMarginChangesNothing) {
  Situation it = situation_of(1, 8, 16 * kMebi, "auto");
  it.cluster.workers[3].speed = 0.7;
  const ChosenSums chosen = it.choose();
  ASSERT_TRUE(chosen.changed);
  const double gain = static_cast<double>((chosen.before - chosen.price).count()) /
                      static_cast<double>(chosen.before.count());
  EXPECT_FALSE(it.choose(gain + 0.001).changed);
}

// On drawn clusters: never slower than the given plan, passes check(), and keeps its own answer.
TEST(Sums, DrawnClusters) {
  int32_t changed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto stages = static_cast<int32_t>(1 + random.below(3));
    const auto pipelines = static_cast<int32_t>(2 + random.below(7));
    const bool tied = stages > 1 && random.below(3) == 0;
    Situation it = situation_of(stages, pipelines, (1 << random.below(28)) + 64, "auto", tied);
    it.pricing.in_turn = random.below(2) == 0;
    for (int64_t slow = random.below(3); slow > 0; --slow) {
      it.cluster.workers[random.below(it.cluster.workers.size())].speed =
          0.3 + 0.05 * static_cast<double>(random.below(14));
    }
    const ChosenSums chosen = it.choose();
    changed += chosen.changed;
    const Status right = check(chosen.plan, sizes_of(it.model, chosen.plan.stages));
    ASSERT_TRUE(right.ok()) << right.error().message;
    EXPECT_EQ(chosen.price, it.price_of(chosen.plan));
    EXPECT_EQ(chosen.changed, chosen.plan != it.plan);
    EXPECT_EQ(chosen.changed, !chosen.reason.empty());
    EXPECT_LE(chosen.price, chosen.before);
    Situation again = it;
    again.plan = chosen.plan;
    EXPECT_FALSE(again.choose().changed) << again.choose().reason;
  }
  EXPECT_GT(changed, 8);
}

// One stage with a slow worker: no algorithm beats the chosen one by more than the margin.
TEST(Sums, NoAlgorithmIsMuchBetterThanTheChosen) {
  int32_t late = 0, halved = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto pipelines = static_cast<int32_t>(3 + random.below(8));
    Situation it = situation_of(1, pipelines, 1 << (6 + random.below(20)), "auto");
    const double latency_us = 10.0 * static_cast<double>(1 + random.below(200));
    it.cluster = uniform_cluster(pipelines, {from_milliseconds(latency_us / 1000), 1e9});
    const WorkerId slow{static_cast<int32_t>(random.below(pipelines))};
    it.cluster.workers[static_cast<size_t>(slow.value)].speed =
        0.5 + 0.05 * static_cast<double>(random.below(10));
    const ChosenSums chosen = it.choose();
    const std::string& name = chosen.plan.schedule.groups[0].summing.algorithm;
    late += name == "late-one";
    halved += name == "halving";
    std::vector<Plan> others = {it.plan, with_all_reduce(it.plan, "halving"),
                                with_summing(it.plan, {{0}}, {"late-one", slow, pipelines - 1})};
    for (const Plan& other : others) {
      const double over = static_cast<double>((chosen.price - it.price_of(other)).count());
      EXPECT_LE(over, 0.02 * static_cast<double>(chosen.before.count()))
          << other.schedule.groups[0].summing.algorithm << " instead of " << name;
    }
  }
  EXPECT_GT(late, 20);
  EXPECT_GT(halved, 0);
}

// adapt() chooses the all-reduces together with the lists, and says so in its reason.
TEST(Sums, AdaptReportsTheChosenAllReduces) {
  Situation it = situation_of(1, 8, 16 * kMebi, "auto");
  it.cluster.workers[3].speed = 0.7;
  AdaptOptions options;
  options.price.update = false;
  options.routing = false;
  options.steps_in_turn = true;
  const auto adapted = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(adapted.ok()) << adapted.error().message;
  EXPECT_TRUE(adapted.value().changed);
  EXPECT_NE(adapted.value().reason.find("sums of stage 0 wait for worker 3"), std::string::npos)
      << adapted.value().reason;
  const auto again = adapt(adapted.value().plan, it.model, it.cluster, options);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again.value().changed) << again.value().reason;
}

}  // namespace
}  // namespace tenuto
