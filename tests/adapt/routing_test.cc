// Routing by adapt(): its plans are right, and their price is the time that was played.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "adapt/adapt.h"
#include "adapt/random_step.h"
#include "adapt/route.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/exhaustive.h"
#include "plan/make_plan.h"
#include "sanitized.h"

namespace tenuto {
namespace {

constexpr MixtureSize kMost{5, 4, 8};

// A routed plan is right, and its price equals the time of the play of its mesh.
TEST(Routing, IsPricedAsItWasPlayed) {
  constexpr int kSteps = kSanitized ? 40 : 400;
  int crossing = 0;
  for (uint64_t seed = 0; seed < kSteps; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(81, seed));
    const Step it = random_step(random, kMost);
    const auto mesh = mesh_of(it.plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(mesh.ok()) << mesh.error().message;
    const Routed routed = search_route(mesh.value());
    const Plan plan = with_routing(it.plan, mesh.value(), routed.ready, Dispatch::Ready);
    const Status right = check(plan, sizes_of(it.model, plan.stages));
    ASSERT_TRUE(right.ok()) << right.error().message;
    const auto timeline = price(plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(timeline.ok()) << timeline.error().message;
    EXPECT_EQ(timeline.value().makespan, routed.ready.time);
    const Plan fixed = with_routing(it.plan, mesh.value(), routed.listed, Dispatch::Listed);
    ASSERT_TRUE(check(fixed, sizes_of(it.model, plan.stages)).ok());
    EXPECT_EQ(price(fixed, it.model, it.cluster, it.options).value().makespan, routed.listed.time);
    EXPECT_LE(routed.listed.time, routed.ready.time);
    EXPECT_LE(routed.bound, routed.listed.time);
    EXPECT_LE(timeline.value().lower_bound, routed.ready.time);
    crossing += routed.ready.routing != even_routing(mesh.value());
  }
  EXPECT_GT(crossing, kSteps / 2);
}

// The same for periods, whether or not the workers of a stage begin a step together. A play does
// not contain the time of reductions over links.
TEST(Routing, PeriodsArePricedAsTheyWerePlayed) {
  for (uint64_t seed = 0; seed < (kSanitized ? 30 : 120); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(81, seed));
    Step it = random_step(random, kMost);
    it.options.staggered = true;
    it.options.update = seed % 2 == 0;
    it.model.step = seed % 4 == 0 ? kStepOp / 2 : Duration{};
    if (it.options.update) it.cluster.between.clear();
    if (it.options.update) it.cluster.exceptions.clear();
    const auto mesh = mesh_of(it.plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(mesh.ok()) << mesh.error().message;
    const Routed routed = search_route(mesh.value());
    const Plan plan = with_routing(it.plan, mesh.value(), routed.ready, Dispatch::Ready);
    const auto timeline = price(plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(timeline.ok()) << timeline.error().message;
    EXPECT_EQ(timeline.value().period, routed.ready.time);
    // Without updates the period is a mean of a few steps, which may be too short while workers
    // still catch up with each other.
    if (it.options.update) {
      EXPECT_LE(routed.bound, routed.ready.time);
    }
  }
}

// If links carry messages one after the other, play and price still agree.
TEST(Routing, LinkRatesAreInPlayAndPrice) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(81, seed));
    Step it = random_step(random, kMost);
    for (Layer& layer : it.model.layers) layer.activation = {10'000};
    it.cluster.between = {{Link{kStepOp / 10, 2e6}}};
    const auto mesh = mesh_of(it.plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(mesh.ok());
    const Routed routed = search_route(mesh.value());
    const Plan plan = with_routing(it.plan, mesh.value(), routed.ready, Dispatch::Ready);
    const auto timeline = price(plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(timeline.ok());
    EXPECT_EQ(timeline.value().makespan, routed.ready.time);
  }
}

// adapt() on mixtures: the plan is right, never slower, and adapt() keeps its own answer.
TEST(Routing, AdaptRoutesAroundMixtures) {
  int routed = 0;
  for (uint64_t seed = 0; seed < (kSanitized ? 20 : 80); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(81, seed));
    const Step it = random_step(random, kMost);
    AdaptOptions options;
    options.price = it.options;
    options.effort = {200'000, 500, 1'000'000};
    const auto adapted = adapt(it.plan, it.model, it.cluster, options);
    ASSERT_TRUE(adapted.ok()) << adapted.error().message;
    const Adapted& found = adapted.value();
    EXPECT_TRUE(check(found.plan, sizes_of(it.model, found.plan.stages)).ok());
    EXPECT_LE(found.lower_bound, found.price);
    EXPECT_FALSE(found.reason.empty());
    if (found.before > Duration{}) {
      EXPECT_LE(found.price, found.before);
    }
    EXPECT_EQ(price(found.plan, it.model, it.cluster, it.options).value().makespan, found.price);
    routed += found.changed;
    const auto again = adapt(found.plan, it.model, it.cluster, options);
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(again.value().changed) << again.value().reason;
    EXPECT_EQ(again.value().plan, found.plan);
  }
  EXPECT_GT(routed, kSanitized ? 10 : 40);
}

// A routed step cannot deadlock, however long ops and messages take.
TEST(Routing, EndsUnderEveryTiming) {
  int tried = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(mix(83, seed));
    const auto memory = static_cast<int32_t>(1 + random.below(2));
    Step it = step_of(
        {2 + static_cast<int32_t>(random.below(2)), 2, 1 + static_cast<int32_t>(seed % 2)}, memory);
    disturb(random, it);
    const auto mesh = mesh_of(it.plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(mesh.ok());
    Routed routed = search_route(mesh.value());
    MeshPlayer player(mesh.value());
    routed.ready.lists = player.as_they_come(routed.ready.routing)->lists;
    const Plan plan = with_routing(it.plan, mesh.value(), routed.ready, Dispatch::Ready);
    ASSERT_TRUE(check(plan).ok());
    const Endings endings = search_all(plan);
    if (!endings.complete) continue;
    ++tried;
    EXPECT_TRUE(endings.ends && !endings.stands_still) << endings.where;
  }
  EXPECT_GT(tried, 20);
}

// The work of a dead worker goes to its peers: checks the holders and the price.
TEST(Routing, APlanWithADeadWorkerRunsOnItsPeers) {
  Step it = step_of({4, 3, 6}, 0, "1f1b");
  it.cluster.workers[2].alive = false;
  AdaptOptions options;
  options.price = it.options;
  const auto adapted = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(adapted.ok()) << adapted.error().message;
  EXPECT_TRUE(adapted.value().changed);
  EXPECT_EQ(adapted.value().price, 33 * kStepOp) << adapted.value().reason;
  EXPECT_EQ(adapted.value().lower_bound, 33 * kStepOp);
  EXPECT_TRUE(adapted.value().plan.schedule.lists[2].empty());
  EXPECT_EQ(adapted.value().plan.stages[2].holders, (std::vector<WorkerId>{{6}, {10}}));
}

TEST(Routing, AStageWithoutALiveWorkerIsRefused) {
  Step it = step_of({3, 2, 4}, 0);
  it.cluster.workers[1].alive = it.cluster.workers[4].alive = false;
  const auto adapted = adapt(it.plan, it.model, it.cluster, {.price = it.options});
  ASSERT_FALSE(adapted.ok());
  EXPECT_EQ(adapted.error().message, "no live worker holds stage 1: start one of its holders");
}

TEST(Routing, NothingIsReRoutedIfRoutingIsOff) {
  Step it = step_of({4, 3, 6}, 4);
  it.cluster.workers[2].speed = 0.5;
  AdaptOptions options;
  options.price = it.options;
  options.routing = false;
  const auto kept = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(kept.ok());
  EXPECT_GE(kept.value().price, 36 * kStepOp);
  options.routing = true;
  const auto routed = adapt(it.plan, it.model, it.cluster, options);
  ASSERT_TRUE(routed.ok());
  EXPECT_LE(routed.value().price, 30 * kStepOp) << routed.value().reason;
}

}  // namespace
}  // namespace tenuto
