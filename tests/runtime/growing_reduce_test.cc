// Which reductions may begin while their sums grow, and with which chunks.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "collective/slice.h"
#include "plan/make_plan.h"
#include "runtime/list_table.h"
#include "runtime/tag.h"

namespace tenuto {
namespace {

constexpr int64_t kSlice = kGrowthSliceBytes / static_cast<int64_t>(sizeof(float));  // elements

// A device whose sums have `elements` each, in `parts` equal parts, the last of which is complete
// first. What is left over does not grow.
class FakeGrowth : public GradientGrowth {
 public:
  FakeGrowth(int64_t elements, int64_t parts) {
    growth_.elements = elements;
    const int64_t size = elements / parts;
    for (int64_t p = parts; p-- > 0;) growth_.parts.push_back({p * size, (p + 1) * size});
  }
  SumGrowth growth_of(StageId) const override { return growth_; }
  void report_growth(StageId) override {}

 private:
  SumGrowth growth_;
};

Plan plan_of(int32_t stages, int32_t pipelines, bool split, bool tied = false) {
  Shape shape;
  shape.stages = stages;
  shape.pipelines = pipelines;
  shape.micros = 2;
  shape.layers = 2 * stages;
  shape.order = split ? "zb-h1" : "1f1b";
  shape.split_backward = split;
  shape.tied = tied;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), plan.error().message);
  return std::move(plan).value();
}

ListTable table_of(const Plan& plan, const GradientGrowth* growth) {
  auto table = ListTable::make(plan, plan.schedule, {0}, growth);
  CHECK(table.ok(), table.error().message);
  return std::move(table).value();
}

Collective ring(int32_t members) {
  const Plan plan = plan_of(1, members, false);
  return plan.schedule.collectives.front();
}

TEST(GrowingReduce, ChunksAreSlicesInTheOrderOfTheirGrowth) {
  const Collective whole = ring(2);
  const SumGrowth growth = FakeGrowth(16 * kSlice, 16).growth_of({});
  const auto cut = collective_of_growth(whole, growth);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->members, whole.members);
  EXPECT_EQ(cut->chunk_count, 16);
  std::vector<int32_t> delays(16);
  for (int32_t c = 0; c < 16; ++c) delays[static_cast<size_t>(c)] = 15 - c;
  EXPECT_EQ(*cut, delayed(sliced(whole, 8), delays));
}

TEST(GrowingReduce, FewSlicesAreNotWorthIt) {
  const Collective whole = ring(2);
  const auto slices = [&](int64_t elements) {
    const auto cut = collective_of_growth(whole, FakeGrowth(elements, 8).growth_of({}));
    return cut ? cut->chunk_count / 2 : 0;
  };
  EXPECT_EQ(slices(6 * kSlice), 0);
  EXPECT_EQ(slices(2 * kLeastGrowthSlices * kSlice), kLeastGrowthSlices);
  EXPECT_FALSE(collective_of_growth(whole, {16 * kSlice, {}}));
  EXPECT_FALSE(collective_of_growth(ring(1), FakeGrowth(16 * kSlice, 8).growth_of({})));
}

TEST(GrowingReduce, MessagesCanNameAllChunks) {
  Plan plan = plan_of(1, 2, false);
  int32_t& chunks = plan.schedule.collectives.front().chunk_count;
  for (const bool many : {false, true}) {
    chunks = many ? kTagChunks / kLeastGrowthSlices + 1 : 16;
    const FakeGrowth growth(int64_t{chunks} * kLeastGrowthSlices * kSlice, 8);
    EXPECT_EQ(table_of(plan, &growth).growing().size(), many ? 0u : 1u);
  }
}

// If the backward is not split, BackwardInput computes the weight gradient and adds it to the sum,
// and BackwardWeight only marks that it is there. If it is split, BackwardWeight does both.
TEST(GrowingReduce, AddersAreThoseOfTheBackward) {
  for (const bool split : {false, true}) {
    const Plan plan = plan_of(2, 2, split);
    const FakeGrowth growth(20 * kSlice + 5, 10);
    const ListTable table = table_of(plan, &growth);
    const std::vector<Op>& list = plan.schedule.lists[0];
    ASSERT_EQ(table.growing().size(), 1u);
    const ListTable::GrowingReduce& reduce = table.growing().front();
    EXPECT_EQ(list[static_cast<size_t>(reduce.index)].kind, OpKind::Reduce);
    EXPECT_EQ(reduce.rest, (std::vector<ElementRange>{{20 * kSlice, 20 * kSlice + 5}}));
    EXPECT_EQ(&table.collective(plan.schedule, reduce.index), &reduce.collective);
    int adders = 0;
    for (int32_t i = 0; i < std::ssize(list); ++i) {
      const int32_t adder = table.adder(i);
      if (adder < 0) continue;
      ++adders;
      EXPECT_EQ(list[static_cast<size_t>(adder)].kind, OpKind::BackwardWeight);
      EXPECT_EQ(list[static_cast<size_t>(adder)].micro, list[static_cast<size_t>(i)].micro);
      EXPECT_EQ(list[static_cast<size_t>(i)].kind,
                split ? OpKind::BackwardWeight : OpKind::BackwardInput);
    }
    EXPECT_EQ(adders, 2);
  }
}

TEST(GrowingReduce, NoneWithoutGrowthOrForATiedWeight) {
  const Plan plan = plan_of(2, 2, true);
  const ListTable table = table_of(plan, nullptr);
  EXPECT_TRUE(table.growing().empty());
  for (int32_t i = 0; i < std::ssize(plan.schedule.lists[0]); ++i) EXPECT_EQ(table.adder(i), -1);
  const FakeGrowth growth(20 * kSlice, 10);
  const Plan tied = plan_of(2, 2, true, true);
  EXPECT_TRUE(table_of(tied, &growth).growing().empty());
}

// Layers may move while the lists stay the same, and then sums grow in another way.
TEST(GrowingReduce, TablesFitTheirGrowth) {
  const Plan plan = plan_of(2, 2, false);
  const FakeGrowth growth(20 * kSlice, 10), other(24 * kSlice, 10);
  const ListTable table = table_of(plan, &growth);
  EXPECT_TRUE(table.fits(plan, plan.schedule, {0}, &growth));
  EXPECT_FALSE(table.fits(plan, plan.schedule, {0}, &other));
  EXPECT_FALSE(table.fits(plan, plan.schedule, {0}, nullptr));
  EXPECT_FALSE(table.fits(plan, plan.schedule, {1}, &growth));
  Plan split = plan;
  split.split_backward = true;
  EXPECT_FALSE(table.fits(split, split.schedule, {0}, &growth));
}

}  // namespace
}  // namespace tenuto
