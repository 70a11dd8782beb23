// The price of reductions that begin while the last backward of their stage computes.
#include "sim/cases.h"

namespace tenuto {
namespace {

constexpr int64_t kMiB = 1 << 20;

// One layer of 16 MiB a stage: two chunks of 16 slices. A slice takes 0.25 ms.
Model grown(Model model, int64_t bytes = 16 * kMiB) {
  for (Layer& layer : model.layers) layer.parameters = {bytes};
  model.sums_grow = true;
  return model;
}

const double kRate = 512 * 1024 / 0.25e-3;

double makespan(const Plan& plan, Model model, bool grows, const PriceOptions& options = {}) {
  model.sums_grow = grows;
  const auto workers = static_cast<int32_t>(plan.schedule.lists.size());
  return to_milliseconds(
      price_of(plan, model, uniform_cluster(workers, {Duration{}, kRate}), options).makespan);
}

// The last op ends at 60. Its slices become complete in turn, faster than the op goes on, and the
// last one needs two moves.
TEST(GrowingSum, OnlyTheLastSliceIsLeft) {
  const Model model = grown(equal_model(1, 10, 10, 10));
  for (const char* order : {"1f1b", "zb-h1"}) {
    const Plan plan = plan_of(shape_of(1, 2, 2, order));
    EXPECT_EQ(makespan(plan, model, false), 60 + 8) << order;
    EXPECT_EQ(makespan(plan, model, true), 60 + 0.5) << order;
  }
}

// A slow worker makes its slices more slowly, and the others wait for them.
TEST(GrowingSum, SlicesFollowTheSlowest) {
  const Plan plan = plan_of(shape_of(1, 2, 2, "1f1b"));
  const Model model = grown(equal_model(1, 10, 10, 10));
  Cluster cluster = uniform_cluster(2, {Duration{}, kRate});
  cluster.workers[1].speed = 0.5;
  const double end = to_milliseconds(price_of(plan, model, cluster).makespan);
  EXPECT_GT(end, 120);
  EXPECT_LE(end, 120 + 0.5);
}

// The links are slower than the op: they are busy from the first slice on. All slices of a chunk
// take the same direction in the first round, the other direction in the second one.
TEST(GrowingSum, SlowLinksAreBusyFromTheFirstSliceOn) {
  const Plan plan = plan_of(shape_of(1, 2, 1, "1f1b"));
  const Model model = grown(equal_model(1, 1, 0.5, 0.5));  // the last op: from 1 to 2
  const double whole = makespan(plan, model, false), early = makespan(plan, model, true);
  EXPECT_EQ(whole, 2 + 8);
  EXPECT_LT(early, whole);
  EXPECT_GE(early, 1 + 8);
}

TEST(GrowingSum, OthersCostTheSame) {
  const Plan plan = plan_of(shape_of(1, 2, 2, "1f1b"));
  const Model small = grown(equal_model(1, 10, 10, 10), kMiB);  // too few slices
  EXPECT_EQ(makespan(plan, small, true), makespan(plan, small, false));
  const Model model = grown(equal_model(1, 10, 10, 10));
  PriceOptions without;
  without.update = false;
  EXPECT_EQ(makespan(plan, model, true, without), makespan(plan, model, false, without));
  Shape shape = shape_of(2, 2, 2, "1f1b");  // both stages share a weight
  shape.tied = true;
  Model tied = grown(equal_model(2, 10, 10, 10));
  tied.tied = {kMiB};
  EXPECT_EQ(makespan(plan_of(shape), tied, true), makespan(plan_of(shape), tied, false));
}

TEST(GrowingSum, StepsInTurnAreShorterToo) {
  const Plan plan = plan_of(shape_of(2, 2, 3, "1f1b"));
  Model model = grown(equal_model(2, 10, 10, 10));
  PriceOptions options;
  options.in_turn = true;
  const Cluster cluster = uniform_cluster(4, {Duration{}, kRate});
  const Timeline early = price_of(plan, model, cluster, options);
  model.sums_grow = false;
  const Timeline late = price_of(plan, model, cluster, options);
  EXPECT_LT(early.period, late.period);
  EXPECT_GE(early.period, early.lower_bound);
}

}  // namespace
}  // namespace tenuto
