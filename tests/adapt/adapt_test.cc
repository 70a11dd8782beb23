// adapt(): makes from a plan and a cluster a plan with the same routing that is not slower.
#include "adapt/adapt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "adapt/cases.h"
#include "adapt/random_line.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/exhaustive.h"
#include "plan/make_plan.h"
#include "sim/bound.h"
#include "sim/route.h"

namespace tenuto {
namespace {

constexpr Duration kOp = std::chrono::milliseconds(10);

Adapted adapted_of(const Case& it, const AdaptOptions& options = {}) {
  AdaptOptions with = options;
  with.price = it.options;
  with.routing = false;  // has tests of its own
  auto adapted = adapt(it.plan, it.model, it.cluster, with);
  EXPECT_TRUE(adapted.ok()) << (adapted.ok() ? "" : adapted.error().message);
  if (adapted.ok()) return std::move(adapted).value();
  Adapted none;
  none.plan = it.plan;
  return none;
}

Duration price_of(const Plan& plan, const Case& it) {
  const auto timeline = price(plan, it.model, it.cluster, it.options);
  EXPECT_TRUE(timeline.ok()) << (timeline.ok() ? "" : timeline.error().message);
  return timeline.ok() ? timeline.value().period : Duration{};
}

// Expects what must hold for every answer.
void expect_sound(const Case& it, const Adapted& adapted) {
  const Status right = check(adapted.plan, sizes_of(it.model, adapted.plan.stages));
  EXPECT_TRUE(right.ok()) << (right.ok() ? "" : right.error().message);
  EXPECT_EQ(adapted.before, price_of(it.plan, it));
  EXPECT_EQ(adapted.price, price_of(adapted.plan, it));
  EXPECT_LE(adapted.price, adapted.before);
  EXPECT_LE(adapted.lower_bound, adapted.price);
  EXPECT_EQ(adapted.changed, adapted.plan != it.plan);
  EXPECT_FALSE(adapted.reason.empty());
  EXPECT_EQ(adapted.plan.stages, it.plan.stages);
  ASSERT_EQ(adapted.plan.limits.size(), it.plan.limits.size());
  for (size_t w = 0; w < it.plan.limits.size(); ++w) {
    EXPECT_EQ(adapted.plan.limits[w].memory, it.plan.limits[w].memory);
  }
  // Each worker keeps its micro-batches.
  const auto routes = [&](const Plan& plan) {
    std::set<std::pair<std::vector<WorkerId>, std::vector<MicroId>>> all;
    for (const Route& route : routes_of(plan, plan.schedule, it.model, it.cluster, it.options)) {
      all.emplace(route.workers, route.micros);
    }
    return all;
  };
  EXPECT_EQ(routes(adapted.plan), routes(it.plan));
}

TEST(Adapt, AnUnchangedClusterKeepsThePlan) {
  for (const char* order : {"zb-h1", "zb-h2"}) {
    const Case it = case_of(equal_line(4, 12, kOp), order);
    const Adapted adapted = adapted_of(it);
    EXPECT_FALSE(adapted.changed) << order << ": " << adapted.reason;
    EXPECT_EQ(adapted.plan, it.plan);
    EXPECT_EQ(adapted.price, adapted.lower_bound);
    expect_sound(it, adapted);
  }
}

TEST(Adapt, ASlowLinkCostsItsDelayOnce) {
  for (const int32_t delay : {1, 2, 4}) {
    Line line = equal_line(8, 24, kOp);
    delay_link(line, 6, delay * kOp);
    const Case it = case_of(line, "zb-h1");
    const Adapted adapted = adapted_of(it);
    expect_sound(it, adapted);
    EXPECT_TRUE(adapted.changed);
    EXPECT_EQ(adapted.price, (79 + delay) * kOp) << adapted.reason;
    EXPECT_EQ(adapted.plan.dispatch, Dispatch::Ready);  // fixed lists would gain nothing
    EXPECT_EQ(adapted.plan.order, "auto");
  }
}

// Random lines, orders and numbers of pipelines, with memory limits and without: the answer is
// never slower, it is right, and adapt() keeps it.
TEST(Adapt, IsNeverSlowerAndKeepsItsOwnPlan) {
  int changed = 0, listed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto below = [&](int64_t bound) { return static_cast<int32_t>(random.below(bound)); };
    const Line line = random_line(random, {2 + below(5), 4 + below(12), random.below(2) == 0});
    Case it = case_of(line, random.below(2) == 0 ? "1f1b" : "zb-h1", 1 + below(2));
    it.options.update = random.below(2) == 0;
    it.options.staggered = random.below(4) == 0;
    it.cluster.half_duplex = random.below(4) == 0;
    it.options.per_op = Duration(random.below(2) * 100'000);
    if (!check(it.plan).ok()) continue;  // zb-h1 may not fit into the memory limits
    const AdaptOptions options{.effort = {500'000, 1'000, 2'000'000}};
    const Adapted adapted = adapted_of(it, options);
    expect_sound(it, adapted);
    changed += adapted.changed;
    listed += adapted.changed && adapted.plan.dispatch == Dispatch::Listed;
    Case again = it;
    again.plan = adapted.plan;
    const Adapted twice = adapted_of(again, options);
    EXPECT_FALSE(twice.changed) << twice.reason;
    EXPECT_EQ(twice.plan, adapted.plan);
    EXPECT_EQ(twice.price, adapted.price);
    const Adapted repeated = adapted_of(it, options);
    EXPECT_EQ(repeated.plan, adapted.plan);
    EXPECT_EQ(repeated.reason, adapted.reason);
  }
  EXPECT_GT(changed, 30);
  EXPECT_GT(listed, 3);
}

// The plans that adapt() makes cannot deadlock, however long ops and messages take.
TEST(Adapt, EndsUnderEveryTiming) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Random random(mix(31, seed));
    const bool several = seed % 4 == 0;
    const Line line = random_line(random, {several ? 2 : 3, several ? 2 : 3, seed % 3 != 0});
    const Case it = case_of(line, "gpipe", several ? 2 : 1);
    for (const Dispatch dispatch : {Dispatch::Ready, Dispatch::Listed}) {
      AdaptOptions options;
      options.dispatch = dispatch;
      options.least_gain = 0;
      const Plan plan = adapted_of(it, options).plan;
      EXPECT_TRUE(check(plan).ok());
      const Endings endings = search_all(plan);
      EXPECT_TRUE(endings.complete && endings.ends && !endings.stands_still) << endings.where;
      EXPECT_FALSE(endings.send_waits);
    }
  }
}

TEST(Adapt, KeepsTheDispatchThatIsAskedFor) {
  Line line = equal_line(4, 12, kOp);
  delay_link(line, 1, 3 * kOp);
  const Case it = case_of(line);
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    AdaptOptions options;
    options.dispatch = dispatch;
    const Adapted adapted = adapted_of(it, options);
    EXPECT_EQ(adapted.plan.dispatch, dispatch);
    EXPECT_EQ(adapted.price, adapted.lower_bound) << adapted.reason;
    expect_sound(it, adapted);
  }
}

// Three pipelines, one with a delayed link: the step is as long as that of the delayed pipeline.
TEST(Adapt, TheStepLastsAsLongAsTheDelayedPipeline) {
  Case it = case_of(equal_line(4, 12, kOp), "zb-h1", 3);
  const auto holder = [&](size_t stage) { return it.plan.stages[stage].holders[1]; };
  for (const auto& [from, to] :
       {std::pair(holder(1), holder(2)), std::pair(holder(2), holder(1))}) {
    it.cluster.exceptions[{from, to}].latency = 2 * kOp;
  }
  const Adapted adapted = adapted_of(it);
  expect_sound(it, adapted);
  EXPECT_TRUE(adapted.changed);
  EXPECT_EQ(adapted.price, 41 * kOp) << adapted.reason;
  EXPECT_GT(adapted.before, 41 * kOp);
}

TEST(Adapt, ASlowWorkerIsPlannedNearTheBound) {
  Line line = equal_line(4, 16, kOp);
  delay_link(line, 0, 2 * kOp);
  Case it = case_of(line, "1f1b");
  it.cluster.workers[2].speed = 0.5;
  const Adapted adapted = adapted_of(it);
  expect_sound(it, adapted);
  EXPECT_LT(adapted.price, adapted.before);
  EXPECT_LE(adapted.price, adapted.lower_bound + adapted.lower_bound / 50);
}

TEST(Adapt, PlansWithSeveralStagesPerWorkerAreKept) {
  for (const char* order : {"interleaved", "zb-v"}) {
    Shape shape;
    shape.stages = 4;
    shape.micros = 8;
    shape.order = order;
    ASSERT_NE(find_card(order), nullptr);
    shape.split_backward = find_card(order)->splits_backward;
    const auto plan = make_plan(shape);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    Case it{plan.value(), {}, uniform_cluster(4, {}), {}};
    it.options.update = false;
    Layer layer;
    layer.forward = layer.backward_input = layer.backward_weight = kOp;
    it.model.layers.assign(it.plan.stages.size(), layer);
    it.cluster.exceptions[{{0}, {1}}].latency = 5 * kOp;
    const Adapted adapted = adapted_of(it);
    EXPECT_FALSE(adapted.changed);
    EXPECT_EQ(adapted.plan, it.plan);
    EXPECT_EQ(adapted.price, adapted.before);
    EXPECT_NE(adapted.reason.find("several stages"), std::string::npos) << adapted.reason;
  }
}

TEST(Adapt, TooLittleMemoryIsRefused) {
  Case it = case_of(equal_line(3, 6, kOp));
  it.plan.limits[1].memory = {5, 6, 3};
  const auto adapted = adapt(it.plan, it.model, it.cluster, {.price = it.options});
  ASSERT_FALSE(adapted.ok());
  EXPECT_EQ(adapted.error().code, Code::Exhausted);
  EXPECT_EQ(adapted.error().reach, Reach::Worker);
  EXPECT_EQ(adapted.error().message,
            "worker 1 (stage 1) may hold 5 and one micro-batch takes 6: raise the memory limit");
}

TEST(Adapt, ADeadWorkerIsRefused) {
  Case it = case_of(equal_line(3, 6, kOp));
  it.cluster.workers[2].alive = false;
  const auto adapted = adapt(it.plan, it.model, it.cluster, {.price = it.options});
  ASSERT_FALSE(adapted.ok());
  EXPECT_EQ(adapted.error().code, Code::Infeasible);
  EXPECT_EQ(adapted.error().reach, Reach::Worker);
}

// A plan that is nearly as good stays: a new order is not worth a change of lists everywhere.
TEST(Adapt, ASmallGainDoesNotChangeThePlan) {
  Line line = equal_line(4, 64, kOp);
  delay_link(line, 2, kOp / 10);
  const Case it = case_of(line, "zb-h1");
  AdaptOptions options;
  options.least_gain = 0.5;
  EXPECT_FALSE(adapted_of(it, options).changed);
}

}  // namespace
}  // namespace tenuto
