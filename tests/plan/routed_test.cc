// Routed plans: right for any absent workers and any routing, priced, and refused when damaged.
#include "plan/routed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/check.h"
#include "ir/executor.h"
#include "ir/text.h"
#include "plan/make_plan.h"
#include "plan/routings.h"
#include "sim/price.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Plan plan_of(int32_t stages, int32_t pipelines, int32_t micros, int32_t memory = 0,
             bool tied = false, bool staggered = false) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = kAutoOrder;
  shape.dispatch = Dispatch::Ready;
  shape.split_backward = true;
  shape.memory = memory;
  shape.tied = tied;
  shape.staggered = staggered;
  shape.evaluation_micros = 5;
  const auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.value();
}

Model model_of(const Plan& plan) {
  Model model;
  const auto ms = [](int64_t count) { return std::chrono::milliseconds(count); };
  model.layers.assign(at(plan.stages.back().layer_end),
                      {.forward = ms(1), .backward_input = ms(1), .backward_weight = ms(1)});
  return model;
}

Result<Timeline> price_of(const Plan& plan, const std::vector<bool>& alive, bool evaluation) {
  Cluster cluster = uniform_cluster(static_cast<int32_t>(alive.size()), {});
  for (size_t w = 0; w < alive.size(); ++w) cluster.workers[w].alive = alive[w];
  PriceOptions options;
  options.lower_bound = true;
  options.evaluation = evaluation;
  return price(plan, model_of(plan), cluster, options);
}

// Expects that the plan passes check, runs to its end in threads, has a price, and gives nothing to
// dead workers.
void expect_right(const Plan& plan, const std::vector<bool>& alive, uint64_t seed) {
  const Status status = check(plan, {});
  ASSERT_TRUE(status.ok()) << status.error().message;
  const Judgement judgement = run_in_threads(plan, seed);
  ASSERT_EQ(judgement.ending, Ending::Right) << judgement.fault << to_text(plan.schedule);
  for (size_t w = 0; w < alive.size(); ++w) {
    if (alive[w]) continue;
    EXPECT_TRUE(plan.schedule.lists[w].empty() && plan.evaluation.lists[w].empty());
  }
  for (const bool evaluation : {false, true}) {
    const auto priced = price_of(plan, alive, evaluation);
    ASSERT_TRUE(priced.ok()) << priced.error().message;
    EXPECT_GE(priced.value().makespan, priced.value().lower_bound);
  }
}

// The norm and the clip decision use the links of most gradients and activations, so a routing that
// avoids a slow link keeps the update off it, too.
TEST(Routed, TheNormGoesTheWayOfTheGradients) {
  const Plan plan = plan_of(2, 2, 3);
  Work work{plan.schedule.lists, {{{0}, {2}}, {{1}, {3}}}};
  for (auto& list : work.lists)
    std::erase_if(list, [](const Op& op) { return is_message(op) || is_update(op); });
  std::swap(work.lists[1], work.lists[3]);  // the second halves of both pipelines
  const Plan twisted = with_work(plan, work);
  ASSERT_TRUE(check(twisted, {}).ok()) << check(twisted, {}).error().message;
  int messages = 0;
  for (size_t w = 0; w < 4; ++w) {
    for (const Op& op : twisted.schedule.lists[w]) {
      if (op.kind != OpKind::Send && op.kind != OpKind::Recv) continue;
      EXPECT_EQ(op.peer.value, 3 - static_cast<int32_t>(w)) << to_text(op);
      messages += op.moved == ValueKind::Norm || op.moved == ValueKind::ClipDecision ? 1 : 0;
    }
  }
  EXPECT_EQ(messages, 8);
}

TEST(Routed, RandomRoutingsWithDeadWorkersAreRight) {
  Random random(5);
  for (int round = 0; round < 150; ++round) {
    const auto stages = static_cast<int32_t>(1 + random.below(4));
    const auto pipelines = static_cast<int32_t>(1 + random.below(3));
    const auto micros = static_cast<int32_t>(1 + random.below(4));
    const Plan plan = plan_of(stages, pipelines, micros, static_cast<int32_t>(random.below(3)),
                              stages > 1 && random.below(3) == 0, round % 2 == 1);
    const std::vector<bool> alive = draw_alive(plan, 0.7, random);
    const Plan routed = with_work(plan, draw_work(plan, alive, random));
    SCOPED_TRACE(to_text(routed.schedule));
    expect_right(routed, alive, static_cast<uint64_t>(round));
    // without_workers() of a routed plan gives the same plan again.
    const auto again = without_workers(routed, alive);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again.value().schedule, routed.schedule);
  }
}

// Workers that join a run take part in sums and updates, and run no other op.
TEST(Routed, JoinersRunNothing) {
  Random random(9);
  int learning = 0;
  for (int round = 0; round < 60; ++round) {
    const auto stages = static_cast<int32_t>(1 + random.below(4));
    const auto pipelines = static_cast<int32_t>(2 + random.below(2));
    const Plan plan = plan_of(stages, pipelines, static_cast<int32_t>(1 + random.below(4)), 0,
                              stages > 1 && random.below(3) == 0, round % 2 == 1);
    const std::vector<bool> alive = draw_alive(plan, 0.7, random);
    std::vector<std::vector<WorkerId>> joiners(plan.stages.size());
    for (size_t s = 0; s < joiners.size(); ++s) {
      for (const WorkerId holder : plan.stages[s].holders) {
        if (!alive[at(holder.value)]) joiners[s].push_back(holder);
      }
    }
    const Plan routed = with_work(plan, draw_work(plan, alive, random));
    const Plan taught = with_joiners(routed, joiners);
    SCOPED_TRACE(to_text(taught.schedule));
    expect_right(taught, std::vector<bool>(alive.size(), true), static_cast<uint64_t>(round));
    for (size_t w = 0; w < alive.size(); ++w) {
      if (alive[w]) continue;
      ++learning;
      EXPECT_TRUE(taught.evaluation.lists[w].empty());
      EXPECT_FALSE(taught.schedule.lists[w].empty());
      for (const Op& op : taught.schedule.lists[w]) EXPECT_TRUE(is_message(op) || is_update(op));
    }
    // Without the joiners the plan is as before.
    const auto again = without_workers(taught, alive);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again.value().schedule, routed.schedule);
  }
  EXPECT_GT(learning, 50);
}

// Every order, also those with several stages a worker.
TEST(Routed, PlansWithoutDeadWorkersAreRightUnderEveryOrder) {
  for (const OrderCard& card : order_cards()) {
    Shape shape;
    shape.stages = 3;
    shape.pipelines = 3;
    shape.micros = 6;
    shape.layers = 12;
    shape.order = card.name;
    shape.split_backward = card.splits_backward;
    shape.evaluation_micros = 7;
    const auto plan = make_plan(shape);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    std::vector<bool> alive(9, true);
    alive[1] = alive[5] = alive[4] = false;
    SCOPED_TRACE(card.name);
    const auto routed = without_workers(plan.value(), alive);
    ASSERT_TRUE(routed.ok()) << routed.error().message;
    expect_right(routed.value(), alive, 3);
  }
}

// If no worker is absent, nothing moves: with_work makes the lists of the plan itself.
TEST(Routed, WithAllAliveThePlanIsUnchanged) {
  for (const bool tied : {false, true}) {
    const Plan plan = plan_of(3, 2, 4, 0, tied);
    const auto same = without_workers(plan, std::vector<bool>(6, true));
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(to_text(same.value().schedule), to_text(plan.schedule));
    EXPECT_EQ(to_text(same.value().evaluation), to_text(plan.evaluation));
  }
}

TEST(Routed, LoadsDifferByOneAtMost) {
  const Plan plan = plan_of(4, 4, 5);
  std::vector<bool> alive(16, true);
  alive[1] = alive[5] = false;  // stage 1 of pipelines 0 and 1
  const auto routed = without_workers(plan, alive);
  ASSERT_TRUE(routed.ok());
  for (const int32_t worker : {9, 13}) {
    const auto& list = routed.value().schedule.lists[at(worker)];
    EXPECT_EQ(std::count_if(list.begin(), list.end(),
                            [](const Op& op) { return op.kind == OpKind::Forward; }),
              10);
  }
}

// 4 stages, 3 pipelines, 6 micro-batches: the work of one dead worker fits into the bubble.
TEST(Routed, OneDeadWorkerFitsIntoTheBubble) {
  const Plan plan = plan_of(4, 3, 6);
  std::vector<bool> alive(12, true);
  alive[2] = false;
  const auto routed = without_workers(plan, alive);
  ASSERT_TRUE(routed.ok());
  const auto priced = price_of(routed.value(), alive, false);
  ASSERT_TRUE(priced.ok());
  EXPECT_LE(to_milliseconds(priced.value().makespan), 29);
  EXPECT_GE(to_milliseconds(priced.value().makespan), 27);
}

TEST(Routed, HeldOutMicrosCrossOnlyAroundTheDead) {
  const Plan plan = plan_of(4, 2, 2);
  std::vector<bool> alive(8, true);
  alive[1] = false;
  const auto routed = without_workers(plan, alive);
  ASSERT_TRUE(routed.ok());
  int crossings = 0;
  for (size_t w = 0; w < 8; ++w) {
    for (const Op& op : routed.value().evaluation.lists[w]) {
      crossings += op.kind == OpKind::Send && at(op.peer.value) / 4 != w / 4;
    }
  }
  EXPECT_EQ(crossings, 3);  // micro-batches 0, 2 and 4 of the five begin in pipeline 0
}

TEST(Routed, TwoWorkersChangePlaces) {
  const Plan plan = plan_of(3, 2, 4);
  for (int32_t a = 0; a < 6; ++a) {
    for (int32_t b = 0; b < a; ++b) {
      const Plan swapped = with_swapped(plan, {a}, {b});
      expect_right(swapped, std::vector<bool>(6, true), 1);
      EXPECT_EQ(stages_of(swapped.stages, {a}), stages_of(plan.stages, {b}));
      EXPECT_EQ(stages_of(swapped.stages, {b}), stages_of(plan.stages, {a}));
      std::vector<std::vector<WorkerId>> runners = runners_of(plan);
      for (auto& of : runners) {
        for (WorkerId& runner : of) {
          if (runner.value == a || runner.value == b) runner = {a + b - runner.value};
        }
      }
      EXPECT_EQ(runners_of(swapped), runners);
      EXPECT_EQ(with_swapped(swapped, {a}, {b}).schedule, plan.schedule);
    }
  }
}

TEST(Routed, AStageWithoutHoldersIsRefused) {
  const auto routed = without_workers(plan_of(2, 2, 2), {true, false, true, false});
  ASSERT_FALSE(routed.ok());
  EXPECT_EQ(routed.error().message, "no live worker holds stage 1: one of 2 must be left");
}

void expect_refused(const Plan& plan, const std::string& sentence) {
  const Status status = check(plan, {});
  ASSERT_FALSE(status.ok()) << "expected: " << sentence;
  EXPECT_NE(status.error().message.find(sentence), std::string::npos) << status.error().message;
}

Op* find(Plan& plan, int32_t worker, const std::string& text) {
  for (Op& op : plan.schedule.lists[at(worker)]) {
    if (to_text(op) == text) return &op;
  }
  ADD_FAILURE() << "no " << text << " at worker " << worker << "\n" << to_text(plan.schedule);
  return nullptr;
}

void drop(Plan& plan, int32_t worker, const std::string& text) {
  auto& list = plan.schedule.lists[at(worker)];
  const auto size = list.size();
  std::erase_if(list, [&](const Op& op) { return to_text(op) == text; });
  ASSERT_EQ(list.size() + 1, size) << text << "\n" << to_text(plan.schedule);
}

TEST(Routed, DamageIsRefused) {
  const Plan plan = plan_of(3, 2, 2);
  std::vector<bool> alive(6, true);
  alive[1] = false;  // stage 1 of pipeline 0: workers 0 and 3, then 4, then 2 and 5
  const auto made = without_workers(plan, alive);
  ASSERT_TRUE(made.ok());
  const Plan& right = made.value();
  {
    Plan damaged = right;  // one of the two readers of a norm is forgotten
    drop(damaged, 4, ">n1@3");
    expect_refused(damaged, "worker 4 never sends n1 to worker 3");
  }
  {
    Plan damaged = right;  // the message is missing at both ends
    drop(damaged, 4, ">n1@3");
    drop(damaged, 3, "<n1@4");
    expect_refused(damaged, "nothing can move");
  }
  {
    Plan damaged = right;  // the absent worker has an op
    damaged.schedule.lists[1].push_back(*find(damaged, 4, "F1.0"));
    expect_refused(damaged, "worker 1 does not hold stage 1");
  }
  {
    Plan damaged = right;  // the absent worker is a holder without ops
    damaged.stages[1].holders.push_back({1});
    expect_refused(damaged, "holds stage 1 and has no Measure of it");
  }
  {
    Plan damaged = right;  // a group lacks one holder
    damaged.schedule.groups[0].members.pop_back();
    expect_refused(damaged, "the members of group 0 are not the holders of its stages");
  }
  {
    Plan damaged = right;  // a worker that is no holder gets a weight gradient
    const Op backward = *find(damaged, 4, "W1.0");
    drop(damaged, 4, "W1.0");
    damaged.schedule.lists[5].push_back(backward);
    expect_refused(damaged, "worker 5 does not hold stage 1");
  }
  {
    Plan damaged = right;  // sums out of order
    std::swap(*find(damaged, 4, "W1.0"), *find(damaged, 4, "W1.1"));
    expect_refused(damaged, "it stands behind micro-batch 1");
  }
}

}  // namespace
}  // namespace tenuto
