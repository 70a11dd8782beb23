// A search that is ended early returns a right plan, the best so far, and the watch says so.
#include "base/watch.h"

#include <gtest/gtest.h>

#include "adapt/adapt.h"
#include "ir/check.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Plan plan_of(int32_t stages, int32_t pipelines, int32_t micros) {
  Shape shape;
  shape.stages = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = kAutoOrder;
  shape.dispatch = Dispatch::Ready;
  shape.split_backward = true;
  return make_plan(shape).value();
}

Model model_of(int32_t stages) {
  Model model;
  for (int32_t s = 0; s < stages; ++s) {
    Layer& layer = model.layers.emplace_back();
    layer.forward = std::chrono::microseconds(900 + 31 * (s % 7));
    layer.backward_input = std::chrono::microseconds(1100 + 57 * (s % 3));
    layer.backward_weight = std::chrono::microseconds(800 + 13 * (s % 5));
  }
  return model;
}

// Compares the answer of adapt() without a time limit with its answer when it must end at once.
void expect_ended(const Plan& plan, const Cluster& cluster) {
  const Model model = model_of(plan.schedule.stage_count);
  AdaptOptions options;
  options.least_gain = options.listed_gain = 0;
  options.price.update = false;
  const auto whole = adapt(plan, model, cluster, options);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  Watch watch;
  watch.end();
  options.watch = &watch;
  const auto ended = adapt(plan, model, cluster, options);
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_TRUE(watch.was_heeded());
  EXPECT_NE(watch.part(), nullptr);
  EXPECT_TRUE(check(ended.value().plan).ok());
  EXPECT_GE(ended.value().price, whole.value().price);
  const auto priced = price(ended.value().plan, model, cluster, options.price);
  ASSERT_TRUE(priced.ok());
  EXPECT_EQ(priced.value().period, ended.value().price);
}

TEST(Watch, EndsTheSearchForAnOrder) {
  Cluster cluster = uniform_cluster(8, {});
  cluster.exceptions[{{2}, {3}}] =
      cluster.exceptions[{{3}, {2}}] = {std::chrono::milliseconds(3), 0};
  expect_ended(plan_of(8, 1, 24), cluster);
}

TEST(Watch, EndsTheSearchForARouting) {
  Cluster cluster = uniform_cluster(6 * 4, {std::chrono::microseconds(700), 0});
  cluster.workers[5].alive = cluster.workers[14].alive = false;
  cluster.workers[2].speed = 0.7;
  cluster.workers[9].speed = 0.45;
  cluster.exceptions[{{1}, {2}}] =
      cluster.exceptions[{{2}, {1}}] = {std::chrono::milliseconds(5), 0};
  expect_ended(plan_of(6, 4, 9), cluster);
}

TEST(Watch, WithoutALimitIsNeverOver) {
  Watch watch;
  EXPECT_FALSE(is_over(&watch));
  EXPECT_FALSE(is_over(nullptr));
  begin_part(&watch, "counting");
  count_item(&watch);
  EXPECT_EQ(watch.done(), 1);
  begin_part(&watch, "counting again");
  EXPECT_EQ(watch.done(), 0);
  EXPECT_FALSE(watch.was_heeded());
}

}  // namespace
}  // namespace tenuto
