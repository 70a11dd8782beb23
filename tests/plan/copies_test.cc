// Copies of stages: which ops they take part in, which workers keep them, and who runs a stage that
// has lost all other holders.
#include "plan/copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "ir/check.h"
#include "ir/executor.h"
#include "ir/text.h"
#include "plan/make_plan.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Plan plan_of(int32_t stages, int32_t pipelines, int32_t micros, bool tied = false) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = "1f1b";
  shape.split_backward = true;
  shape.tied = tied;
  shape.evaluation_micros = 5;
  const auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.value();
}

void expect_right(const Plan& plan, uint64_t seed) {
  const Status status = check(plan, {});
  ASSERT_TRUE(status.ok()) << status.error().message;
  const Judgement judgement = run_in_threads(plan, seed);
  EXPECT_EQ(judgement.ending, Ending::Right) << judgement.fault << to_text(plan.schedule);
}

std::vector<WorkerId> runners_of(const Plan& plan, int32_t stage) {
  std::vector<WorkerId> runners;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    const auto& list = plan.schedule.lists[w];
    const bool runs = std::any_of(list.begin(), list.end(), [&](const Op& op) {
      return op.kind == OpKind::Forward && op.stage.value == stage;
    });
    if (runs) runners.push_back({static_cast<int32_t>(w)});
  }
  return runners;
}

TEST(Copies, TakePartInSumsAndUpdatesAndRunNothing) {
  const Plan plan = plan_of(3, 2, 4);
  const Copies copies = choose_copies(plan, {}).value();
  const Plan made = with_copies(plan, copies);
  expect_right(made, 1);
  EXPECT_EQ(copies_in(made), copies);
  EXPECT_EQ(without_copies(made), plan);
  EXPECT_EQ(copies_in(plan), Copies(3));
  for (int32_t s = 0; s < 3; ++s) {
    EXPECT_EQ(runners_of(made, s), plan.stages[at(s)].holders);
    EXPECT_EQ(made.stages[at(s)].holders.size(), 3U);
  }
  EXPECT_EQ(made.evaluation, plan.evaluation);
}

TEST(Copies, AreAtWorkersOfOtherStagesOneEach) {
  for (const bool tied : {false, true}) {
    for (const auto& [stages, pipelines] : {std::pair(2, 1), {2, 3}, {3, 1}, {4, 2}, {5, 4}}) {
      if (tied && (stages == 2 || stages * pipelines < 6)) continue;  // see below
      const Plan plan = plan_of(stages, pipelines, 4, tied);
      const Copies copies = choose_copies(plan, {}).value();
      std::set<WorkerId> keepers;
      for (int32_t s = 0; s < stages; ++s) {
        ASSERT_EQ(copies[at(s)].size(), 1U);
        const WorkerId keeper = copies[at(s)].front();
        keepers.insert(keeper);
        EXPECT_NE(keeper.value % stages, s);
        EXPECT_FALSE(tied && s == stages - 1 && keeper.value % stages == 0);
      }
      EXPECT_EQ(keepers.size(), tied ? keepers.size() : at(stages)) << stages;
      expect_right(with_copies(plan, copies), 2);
    }
  }
}

TEST(Copies, AreAtAnotherPlaceIfThereIsOne) {
  // Workers 0 to 3 are at place 0, 4 to 7 at place 1, and stages 0 and 1 are held at place 0 alone.
  Plan plan = plan_of(4, 2, 4);
  plan = with_holders(plan, {{{0}, {1}}, {{2}, {3}}, {{4}, {5}}, {{6}, {7}}});
  const Copies copies = choose_copies(plan, {0, 0, 0, 0, 1, 1, 1, 1}).value();
  for (int32_t s = 0; s < 4; ++s) {
    EXPECT_EQ(copies[at(s)].front().value >= 4, s < 2) << "stage " << s;
  }
}

TEST(Copies, NeedASecondStageWithoutASharedWeight) {
  EXPECT_EQ(choose_copies(plan_of(1, 3, 4), {}).error().message,
            "no worker can keep a copy of stage 0: the plan has only one stage");
  // Worker 1 of a single pipeline of three would have both ends of the shared weight.
  for (const auto& plan : {plan_of(2, 2, 4, true), plan_of(3, 1, 4, true)}) {
    const auto copies = choose_copies(plan, {});
    ASSERT_FALSE(copies.ok());
    EXPECT_NE(copies.error().message.find("share a weight"), std::string::npos);
  }
}

TEST(Copies, RunNothingWhileOthersRunTheStage) {
  const Plan plan = plan_of(2, 3, 6);
  const Copies copies = choose_copies(plan, {}).value();
  const Plan made = with_copies(plan, copies);
  std::vector<bool> alive(6, true);
  alive[0] = false;  // a worker of stage 0
  const Plan left = without_workers(made, alive).value();
  expect_right(left, 3);
  EXPECT_EQ(runners_of(left, 0), (std::vector<WorkerId>{{2}, {4}}));
  const WorkerId keeper = copies[0].front();
  const auto& holders = left.stages[0].holders;
  EXPECT_NE(std::find(holders.begin(), holders.end(), keeper), holders.end());
}

TEST(Copies, RunTheStageThatHasLostAllOthers) {
  const Plan plan = plan_of(2, 3, 6);
  const Copies copies = choose_copies(plan, {}).value();
  const Plan made = with_copies(plan, copies);
  const WorkerId keeper = copies[0].front();
  std::vector<bool> alive(6, true);
  alive[0] = alive[2] = alive[4] = false;
  const Plan left = without_workers(made, alive).value();
  expect_right(left, 4);
  EXPECT_EQ(runners_of(left, 0), (std::vector<WorkerId>{keeper}));
  // Two other holders of the keeper's own stage are left: they do its work there, and it keeps the
  // state.
  EXPECT_EQ(runners_of(left, 1).size(), 2U);
  EXPECT_EQ(copies_in(left)[1], (std::vector<WorkerId>{keeper}));
  // When its first holders are back, they run the stage again.
  EXPECT_EQ(runners_of(without_workers(made, std::vector<bool>(6, true)).value(), 0),
            plan.stages[0].holders);
}

TEST(Copies, RunTwoStagesInASinglePipeline) {
  const Plan plan = plan_of(3, 1, 4);
  const Plan made = with_copies(plan, choose_copies(plan, {}).value());
  for (int32_t dead = 0; dead < 3; ++dead) {
    std::vector<bool> alive(3, true);
    alive[at(dead)] = false;
    const Plan left = without_workers(made, alive).value();
    expect_right(left, 5);
    for (int32_t s = 0; s < 3; ++s) {
      ASSERT_EQ(runners_of(left, s).size(), 1U);
      EXPECT_NE(runners_of(left, s).front().value, dead);
    }
    // If a second worker dies, some stage has no holder.
    alive[at((dead + 1) % 3)] = false;
    EXPECT_FALSE(without_workers(made, alive).ok());
  }
}

TEST(Copies, PlansAreValidWhileEachStageHasAHolder) {
  std::mt19937_64 random(7);
  int planned = 0;
  for (int round = 0; round < 120; ++round) {
    const auto stages = static_cast<int32_t>(2 + random() % 3);
    const auto pipelines = static_cast<int32_t>(1 + random() % 3);
    const bool tied = stages > 2 && pipelines > 1 && random() % 3 == 0;
    const Plan plan = plan_of(stages, pipelines, static_cast<int32_t>(1 + random() % 4), tied);
    const auto chosen = choose_copies(plan, {});
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    const Plan made = with_copies(plan, chosen.value());
    std::vector<bool> alive(at(stages * pipelines), true);
    for (size_t w = 0; w < alive.size(); ++w) alive[w] = random() % 3 != 0;
    bool held = true;
    for (const Stage& stage : made.stages) {
      held = held && std::any_of(stage.holders.begin(), stage.holders.end(),
                                 [&](WorkerId holder) { return alive[at(holder.value)]; });
    }
    const auto left = without_workers(made, alive);
    ASSERT_EQ(left.ok(), held);
    if (!held) continue;
    ++planned;
    expect_right(left.value(), random());
    for (int32_t s = 0; s < stages; ++s) {
      for (const WorkerId runner : runners_of(left.value(), s))
        EXPECT_TRUE(alive[at(runner.value)]);
    }
  }
  EXPECT_GT(planned, 40);
}

}  // namespace
}  // namespace tenuto
