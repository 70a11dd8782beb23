// Plans with a stage for each layer: the same work in the same order, right, and right again after
// any moves of layers.
#include "plan/fine_stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/executor.h"
#include "ir/text.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "plan/routed.h"
#include "sim/price.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Workers in pipelines, each worker with two layers more than there are stages.
Result<Plan> plan_of(const OrderCard& card, Dispatch dispatch, bool tied, bool staggered) {
  Shape shape;
  shape.stages = 2;
  shape.pipelines = 2;
  shape.micros = 4;
  shape.layers = 2 * std::max(1, card.chunks) * 2 + 1;
  shape.order = card.name;
  shape.dispatch = dispatch;
  shape.split_backward = card.splits_backward;
  shape.tied = tied;
  shape.staggered = staggered;
  shape.evaluation_micros = 3;
  return make_plan(shape);
}

// The compute ops of a list with the stages of `coarse`, each op of several layers once.
std::vector<Op> joined(const std::vector<Op>& list, const std::vector<Stage>& coarse) {
  std::vector<Op> all;
  for (Op op : list) {
    if (is_message(op) || !has_micro(op)) continue;
    for (size_t s = 0; s < coarse.size(); ++s) {
      if (op.stage.value >= coarse[s].layer_first && op.stage.value < coarse[s].layer_end) {
        op.stage = {static_cast<int32_t>(s)};
        break;
      }
    }
    if (all.empty() || all.back() != op) all.push_back(op);
  }
  return all;
}

std::vector<Op> computes(const std::vector<Op>& list) {
  std::vector<Op> all;
  std::copy_if(list.begin(), list.end(), std::back_inserter(all),
               [](const Op& op) { return !is_message(op) && has_micro(op); });
  return all;
}

int64_t messages(const Schedule& schedule) {
  int64_t count = 0;
  for (const auto& list : schedule.lists) {
    count += std::count_if(list.begin(), list.end(), [](const Op& op) {
      return op.kind == OpKind::Send &&
             (op.moved == ValueKind::Activation || op.moved == ValueKind::Gradient);
    });
  }
  return count;
}

// Times that are the same for each layer of a stage and add up to a millisecond.
Model model_of(const Plan& coarse) {
  Model model;
  for (const Stage& stage : coarse.stages) {
    const Duration part =
        Duration(std::chrono::microseconds(5040)) / (stage.layer_end - stage.layer_first);
    for (int32_t layer = stage.layer_first; layer < stage.layer_end; ++layer) {
      Layer& of = model.layers.emplace_back();
      of.forward = of.backward_input = of.backward_weight = part;
      of.activation = {1000};
    }
  }
  return model;
}

void expect_right(const Plan& plan, uint64_t seed) {
  const Status status = check(plan, {});
  ASSERT_TRUE(status.ok()) << status.error().message;
  const Judgement judgement = run_in_threads(plan, seed);
  EXPECT_EQ(judgement.ending, Ending::Right) << judgement.fault << to_text(plan.schedule);
}

TEST(FineStages, AreTheSameWorkInTheSameOrder) {
  int32_t plans = 0;
  for (const OrderCard& card : order_cards()) {
    for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
      for (const bool tied : {false, true}) {
        for (const bool staggered : {false, true}) {
          const auto coarse = plan_of(card, dispatch, tied, staggered);
          if (!coarse.ok()) continue;  // this order cannot share a weight
          SCOPED_TRACE(cat(card.name, dispatch == Dispatch::Ready ? " ready" : " listed",
                           tied ? " tied" : "", staggered ? " staggered" : ""));
          const auto fine = with_fine_stages(coarse.value());
          ASSERT_TRUE(fine.ok()) << fine.error().message;
          ++plans;
          expect_right(fine.value(), 1);
          const auto& stages = coarse.value().stages;
          EXPECT_EQ(std::ssize(fine.value().stages), stages.back().layer_end);
          EXPECT_EQ(fine.value().update, coarse.value().update);
          for (size_t w = 0; w < fine.value().schedule.lists.size(); ++w) {
            EXPECT_EQ(joined(fine.value().schedule.lists[w], stages),
                      computes(coarse.value().schedule.lists[w]));
            EXPECT_EQ(joined(fine.value().evaluation.lists[w], stages),
                      computes(coarse.value().evaluation.lists[w]));
          }
          EXPECT_EQ(messages(fine.value().schedule), messages(coarse.value().schedule));
          EXPECT_EQ(messages(fine.value().evaluation), messages(coarse.value().evaluation));
          EXPECT_EQ(with_fine_stages(fine.value()).value(), fine.value());
        }
      }
    }
  }
  EXPECT_GT(plans, 40);
}

bool hold_one_each(const Plan& plan) {
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    if (stages_of(plan.stages, {static_cast<int32_t>(w)}).size() > 1) return false;
  }
  return true;
}

TEST(FineStages, BecomeTheStagesThatTheyComeFromAgain) {
  int32_t plans = 0;
  for (const OrderCard& card : order_cards()) {
    for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
      for (const bool staggered : {false, true}) {
        const Plan plan = plan_of(card, dispatch, false, staggered).value();
        SCOPED_TRACE(cat(card.name, dispatch == Dispatch::Ready ? " ready" : " listed"));
        const auto coarse = with_coarse_stages(with_fine_stages(plan).value());
        ASSERT_EQ(coarse.has_value(), hold_one_each(plan));
        if (!coarse) continue;
        ++plans;
        EXPECT_EQ(coarse->stages, plan.stages);
        EXPECT_EQ(coarse->schedule, plan.schedule);
        EXPECT_EQ(coarse->evaluation, plan.evaluation);
        expect_right(*coarse, 3);
      }
    }
  }
  EXPECT_GT(plans, 8);
}

// Limits count other units, and allow the same.
TEST(FineStages, KeepTheirMemoryWhenTheyAreUnited) {
  Shape shape;
  shape.stages = shape.micros = 4;
  shape.layers = 10;
  shape.memory = 4;
  shape.late_share = 0.5;
  shape.order = "zb-h1";
  shape.split_backward = true;
  const Plan plan = make_plan(shape).value();
  const auto coarse = with_coarse_stages(with_fine_stages(plan).value());
  ASSERT_TRUE(coarse);
  for (size_t w = 0; w < plan.limits.size(); ++w) {
    for (int64_t before = 0; before <= 6; ++before) {
      for (int64_t behind = 0; behind <= 9; ++behind) {
        EXPECT_EQ(coarse->limits[w].memory.fits(before, behind),
                  plan.limits[w].memory.fits(before, behind))
            << w << " " << before << " " << behind;
      }
    }
  }
}

// A layer that has moved in one pipeline alone leaves its old worker there with two stages.
TEST(FineStages, AreUnitedOnlyIfEachWorkerThenHoldsOne) {
  const Plan fine =
      with_fine_stages(plan_of(*find_card("1f1b"), Dispatch::Listed, false, false).value()).value();
  ASSERT_EQ(fine.stages.size(), 5U);
  const std::vector<WorkerId> first = fine.stages.front().holders,
                              last = fine.stages.back().holders;
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : fine.stages) holders.push_back(stage.holders);
  const size_t moved =
      static_cast<size_t>(std::find(holders.begin(), holders.end(), last) - holders.begin());
  holders[moved][0] = first[0];
  EXPECT_FALSE(with_coarse_stages(with_holders(fine, holders)));
  holders[moved][1] = first[1];
  const auto coarse = with_coarse_stages(with_holders(fine, holders));
  ASSERT_TRUE(coarse);
  EXPECT_EQ(coarse->stages.size(), 2U);
  EXPECT_EQ(coarse->stages[0].layer_end, static_cast<int32_t>(moved) + 1);
  expect_right(*coarse, 4);
}

TEST(FineStages, TakeAsLongAsTheStagesThatTheyComeFrom) {
  for (const OrderCard& card : order_cards()) {
    const auto coarse = plan_of(card, Dispatch::Listed, false, false);
    ASSERT_TRUE(coarse.ok());
    const Plan fine = with_fine_stages(coarse.value()).value();
    const Model model = model_of(coarse.value());
    const Cluster cluster = uniform_cluster(4, {std::chrono::microseconds(70), 1e9});
    PriceOptions options;
    options.update = false;
    const auto before = price(coarse.value(), model, cluster, options);
    const auto after = price(fine, model, cluster, options);
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_EQ(after.value().makespan, before.value().makespan) << card.name;
  }
}

TEST(FineStages, KeepTheLimitsOnMemory) {
  Shape shape;
  shape.stages = 2;
  shape.micros = 6;
  shape.layers = 8;
  shape.order = "1f1b";
  shape.memory = 2;
  const Plan coarse = make_plan(shape).value();
  const Plan fine = with_fine_stages(coarse).value();
  for (size_t w = 0; w < 2; ++w) {
    const MemoryLimit& before = coarse.limits[w].memory;
    const MemoryLimit& after = fine.limits[w].memory;
    EXPECT_EQ(after.most * before.whole, 4 * before.most * after.whole);
    EXPECT_EQ(after.late * before.whole, before.late * after.whole);
    EXPECT_EQ(fine.limits[w].micros, 4 * coarse.limits[w].micros);
    EXPECT_EQ(fine.limits[w].warm_up, 4 * coarse.limits[w].warm_up);
  }
}

TEST(FineStages, CannotShareAWeightAtOneWorker) {
  Plan coarse = plan_of(order_cards().front(), Dispatch::Ready, false, false).value();
  for (Stage& stage : coarse.stages) stage.holders = {{0}};
  coarse.update.tied = true;
  const auto fine = with_fine_stages(coarse);
  ASSERT_FALSE(fine.ok());
  EXPECT_NE(fine.error().message.find("share a weight"), std::string::npos);
}

// A layer at the edge of what a worker holds goes to the worker that holds the layer beside it.
TEST(FineStages, AreRightAfterAnyMoves) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    Random random(seed);
    Shape shape;
    shape.stages = 2 + static_cast<int32_t>(random.below(3));
    shape.pipelines = 1 + static_cast<int32_t>(random.below(3));
    shape.micros = 1 + static_cast<int32_t>(random.below(4));
    shape.layers = shape.stages * 3;
    shape.order = random.below(2) == 0 ? "1f1b" : "zb-h1";
    shape.split_backward = shape.order == "zb-h1";
    shape.evaluation_micros = 2;
    shape.dispatch = Dispatch::Ready;
    const auto made = make_plan(shape);
    ASSERT_TRUE(made.ok()) << made.error().message;
    Plan plan = with_fine_stages(made.value()).value();
    for (int32_t move = 0; move < 4; ++move) {
      const auto s = static_cast<int32_t>(random.below(shape.layers));
      const int32_t beside = random.below(2) == 0 ? s - 1 : s + 1;
      if (beside < 0 || beside >= shape.layers) continue;
      const auto pipe = static_cast<size_t>(random.below(shape.pipelines));
      const WorkerId donor = plan.stages[at(s)].holders[pipe];
      const WorkerId receiver = plan.stages[at(beside)].holders[pipe];
      if (donor == receiver || stages_of(plan.stages, donor).size() < 2) continue;
      std::vector<std::vector<WorkerId>> joiners(plan.stages.size()), holders;
      joiners[at(s)] = {receiver};
      expect_right(with_joiners(plan, joiners), seed);  // while it receives the layer
      for (const Stage& stage : plan.stages) holders.push_back(stage.holders);
      holders[at(s)][pipe] = receiver;
      plan = with_holders(plan, holders);
      expect_right(plan, seed);
      // Any worker may die, if each of its layers has another holder.
      std::vector<bool> alive(plan.schedule.lists.size(), true);
      alive[static_cast<size_t>(random.below(std::ssize(alive)))] = false;
      const auto left = without_workers(plan, alive);
      if (left.ok()) expect_right(left.value(), seed);
    }
  }
}

}  // namespace
}  // namespace tenuto
