// The rest of a step in which a worker was lost: when it is run, what each worker is told, and what
// a new coordinator, which did not compute it, does with it.
#include "control/rest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "control/survival.h"
#include "control/take_up.h"
#include "ir/check.h"
#include "ir/text.h"

namespace tenuto {
namespace {

// Ops take time, so that running fewer of them is faster.
Rules timed_rules() {
  Rules rules = surviving_rules();
  for (Layer& layer : rules.model.layers) {
    layer.forward = layer.backward_input = layer.backward_weight = 5 * kMillisecond;
  }
  return rules;
}

// Sets what each survivor reports of the step when it freezes: pipeline 0 has done its micro-batch,
// and worker 2 has sent the activation of the other one to worker 3, which died.
void hold_half(Survival& run) {
  const auto value = [](ValueKind kind, int32_t stage, int32_t micro) {
    return Value{kind, -1, {stage}, {micro}};
  };
  const std::vector<std::vector<Value>> values = {
      {value(ValueKind::Activation, 0, 0), value(ValueKind::Partial, 0, 0)},
      {value(ValueKind::Gradient, 1, 0), value(ValueKind::Partial, 1, 0)},
      {value(ValueKind::Activation, 0, 1), value(ValueKind::Stash, 0, 1)}};
  for (size_t i = 0; i < values.size(); ++i) {
    run.reports[i].resumes = true;
    run.reports[i].held = {{run.state.committed, 1, {values[i], {}}, {}}};
  }
  run.reports[1].held.front().losses = {0};
}

// A run that has stopped in the step of hold_half().
struct HalfDone : Survival {
  HalfDone() : Survival(timed_rules()) {
    steps(2);
    die();
    hold_half(*this);
  }
};

TEST(Rest, OnlyNeededLostValuesAreComputedAgain) {
  HalfDone run;
  run.keep(run.freeze());
  ASSERT_EQ(run.state.situation, Situation::Running);
  const auto rest = run.state.told.rest;
  ASSERT_TRUE(rest) << run.reasons.back();
  EXPECT_EQ(rest->epoch, 2);
  EXPECT_EQ(rest->step, 2);
  Stores stores;
  int32_t forwards = 0;
  for (const RestPart& part : rest->parts) stores.push_back(part.stored);
  const Status right = check(rest->plan, {}, stores);
  EXPECT_TRUE(right.ok()) << right.error().message;
  for (const Op& op : rest->plan.schedule.lists[1]) forwards += op.kind == OpKind::Forward ? 1 : 0;
  EXPECT_EQ(forwards, 1);  // of the micro-batch that worker 3 had
  EXPECT_NE(run.reasons.back().find("5 ops are left of 12"), std::string::npos);
  const auto read = plan_from_json(to_json(rest->plan), "what is left");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value(), rest->plan);
  EXPECT_NE(run.reasons.back().find("step 2 continues without worker 3"), std::string::npos);
  run.run();
  run.take_all();
  EXPECT_EQ(run.state.committed, 3);
  EXPECT_FALSE(run.state.told.rest) << "a step that is committed has nothing left";
  run.steps(2);
  EXPECT_EQ(run.state.committed, 5);
}

TEST(Rest, IfAWorkerCannotResumeTheStepIsRepeated) {
  HalfDone run;
  run.reports[2].resumes = false;
  run.keep(run.freeze());
  EXPECT_FALSE(run.state.told.rest);
  EXPECT_NE(run.reasons.back().find("step 2 is done again"), std::string::npos);
}

// A micro-batch's weight gradient is in a live sum, but its loss is known to nobody: its forward
// runs again to make the loss.
TEST(Rest, ALostLossIsComputedAgain) {
  HalfDone run;
  run.reports[1].held.front().losses = {};
  run.keep(run.freeze());
  const auto rest = run.state.told.rest;
  ASSERT_TRUE(rest) << run.reasons.back();
  EXPECT_NE(run.reasons.back().find("6 ops are left of 12"), std::string::npos);
  const std::vector<Op>& list = rest->plan.schedule.lists[1];
  const auto is_it = [](const Op& op) {
    return op.kind == OpKind::Forward && op.stage.value == 1 && op.micro.value == 0;
  };
  EXPECT_EQ(std::count_if(list.begin(), list.end(), is_it), 1);
}

TEST(Rest, InventoriesOfOtherStepsAndStagesAreIgnored) {
  HalfDone run;
  for (size_t i = 0; i < 3; ++i) run.reports[i].held.front().step = 3;
  run.reports[0].held.push_back({2, 1, {{}, {{7}, {-2}}}, {}});
  run.keep(run.freeze());
  EXPECT_FALSE(run.state.told.rest);
  run.run();
  run.take_all();
  EXPECT_EQ(run.state.committed, 3);
}

TEST(Rest, ADeathInRecoveryReadsTheInventoriesAgain) {
  HalfDone run;
  run.keep(run.freeze());
  ASSERT_TRUE(run.state.told.rest);
  run.die({0});  // worker 2 has stage 0 alone; worker 0's part of micro-batch 0 is lost
  EXPECT_FALSE(run.state.told.rest);
  run.keep(run.freeze());
  ASSERT_TRUE(run.state.told.rest) << run.reasons.back();
  EXPECT_EQ(run.state.told.rest->epoch, 3);
  for (const size_t gone : {0, 3}) {
    EXPECT_TRUE(run.state.told.rest->plan.schedule.lists[gone].empty());
  }
  run.run();
  run.take_all();
  EXPECT_EQ(run.state.committed, 3);
}

// All workers have stepped when one dies: no op is left, and the step need not be done again to
// save its checkpoint.
TEST(Rest, ACompleteStepIsNotRepeatedForItsCheckpoint) {
  Rules rules = timed_rules();
  rules.checkpoint_every = 3;
  Survival run(rules);
  run.steps(2);
  ASSERT_EQ(run.state.committed, 2);
  for (const size_t i : {0, 2, 3}) run.keep(run.take(i));
  ASSERT_EQ(run.state.committed, 2) << "worker 1 still saves its shard, and reports it afterwards";
  run.die();
  run.reports[1].version = 3;
  run.reports[1].steps = {{.step = 2, .losses = {{{0}, 3.0}}}};
  const auto value = [](ValueKind kind, int32_t stage) { return Value{kind, -1, {stage}, {}}; };
  for (size_t i = 0; i < 3; ++i) {
    const auto stage = static_cast<int32_t>(i % 2);
    run.reports[i].resumes = true;
    StepInventory held{2, 1, {}, {static_cast<int32_t>(i / 2)}};
    held.inventory.values = {value(ValueKind::Total, stage), value(ValueKind::ClipDecision, 0)};
    held.inventory.stepped = {{stage}};
    run.reports[i].held = {held};
  }
  run.reports[1].held.front().losses = {0, 1};  // worker 3 had reported loss 1
  run.keep(run.freeze());
  const auto rest = run.state.told.rest;
  ASSERT_TRUE(rest) << run.reasons.back();
  EXPECT_NE(run.reasons.back().find("0 ops are left of 12"), std::string::npos);
  for (const auto& list : rest->plan.schedule.lists) EXPECT_TRUE(list.empty());
  for (const RestPart& part : rest->parts) EXPECT_TRUE(part.back.empty());
}

// Worker 0 has values of an earlier attempt than the others. The work was dealt out differently in
// it, so these values are dropped, and worker 0 undoes its update.
TEST(Rest, ValuesOfAnotherAttemptAreDropped) {
  HalfDone run;
  for (const size_t i : {1, 2}) run.reports[i].held.front().attempt = 2;
  StepInventory& behind = run.reports[0].held.front();
  behind.inventory.values.push_back({ValueKind::Total, -1, {0}, {}});
  behind.inventory.stepped = {{0}};
  run.reports[0].version = 3;
  run.keep(run.freeze());
  const auto rest = run.state.told.rest;
  ASSERT_TRUE(rest) << run.reasons.back();
  EXPECT_EQ(rest->attempt, 2);
  EXPECT_TRUE(rest->parts[0].stored.empty());
  EXPECT_EQ(rest->parts[0].back, (std::vector<StageId>{{0}}));
  EXPECT_FALSE(rest->parts[1].stored.empty());
}

// Nobody reported when the iteration began, so the record has no length. Its end is that of the
// last weight gradient.
TEST(Rest, TheStepRecordHasAnEndButNoLength) {
  HalfDone run;
  run.keep(run.freeze());
  ASSERT_TRUE(run.state.told.rest);
  run.run();
  run.done.clear();
  for (const size_t i : {0, 1, 2}) {
    Report& of = run.reports[i];
    StepSummary summary{.step = 2, .start_ns = 1, .finish_ns = 2};
    summary.device_start_ns = i == 2 ? 0 : 100;
    summary.device_finish_ns = i == 2 ? 0 : 200 + static_cast<int64_t>(i);
    if (i == 1) summary.losses = {{{0}, 1.0}, {{1}, 3.0}};
    of.steps = {summary};
    of.version = 3;
    run.keep(run.report(i));
  }
  ASSERT_EQ(run.done.size(), 1u);
  EXPECT_TRUE(run.done.front().complete);
  EXPECT_FALSE(run.done.front().iteration);
  EXPECT_EQ(run.done.front().iteration_end, Duration(201));
}

// A new coordinator does not know the rest that its predecessor computed, and some workers may not
// have been told. It begins an epoch and computes the rest again.
TEST(Rest, ASuccessorBeginsAnEpochAndSalvagesAgain) {
  Rules rules = timed_rules();
  Survival run(rules);
  run.steps(2);
  run.die();
  EXPECT_FALSE(facts_of(run.state).rest);
  hold_half(run);
  run.keep(run.freeze());
  ASSERT_TRUE(run.state.told.rest);
  const Facts facts = facts_of(run.state);
  EXPECT_TRUE(facts.rest);
  rules.term = facts.term + 1;
  const PlansOfFacts plans{run.state.planning.present, run.state.planning.previous};
  run.state = take_up(rules, facts, plans, run.now);
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_EQ(run.state.epoch, facts.epoch + 1);
  EXPECT_EQ(run.state.told.directive.phase, Phase::Frozen);
  EXPECT_FALSE(facts_of(run.state).rest);
  EXPECT_EQ(facts_of(run.state).target, -1);
  hold_half(run);
  run.keep(run.freeze());
  ASSERT_EQ(run.state.situation, Situation::Running);
  ASSERT_TRUE(run.state.told.rest) << run.reasons.back();
  EXPECT_EQ(run.state.told.rest->epoch, facts.epoch + 1);
  run.run();
  run.take_all();
  EXPECT_EQ(run.state.committed, 3);
  EXPECT_FALSE(facts_of(run.state).rest);
}

// Once the step is committed, a new coordinator begins no epoch.
TEST(Rest, ASuccessorAfterTheStepChangesNothing) {
  Rules rules = timed_rules();
  Survival run(rules);
  run.steps(2);
  run.die();
  hold_half(run);
  run.keep(run.freeze());
  run.run();
  run.take_all();
  const Facts facts = facts_of(run.state);
  rules.term = facts.term + 1;
  const State next =
      take_up(rules, facts, {run.state.planning.present, run.state.planning.previous}, run.now);
  EXPECT_EQ(next.situation, Situation::Running);
  EXPECT_EQ(next.epoch, facts.epoch);
}

}  // namespace
}  // namespace tenuto
