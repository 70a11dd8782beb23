// How training goes on without a dead worker, rule by rule. C1 to C5 are the coordinator's rules of
// the recovery protocol, docs/decisions/020.
#include "control/recover.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "control/survival.h"
#include "ir/check.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

TEST(Recover, C1ADeathBeginsAnEpochWithoutTheDead) {
  Survival run;
  run.steps(2);
  const Decision decision = run.die();
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_STREQ(decision.event, "death");
  EXPECT_EQ(decision.reason,
            "worker 3 (stage 1 of pipeline 1) was killed by signal 9 in step 2: the run continues "
            "without it, epoch 2");
  ASSERT_TRUE(decision.instruction);
  EXPECT_EQ(decision.instruction->directive.phase, Phase::Frozen);
  EXPECT_EQ(decision.instruction->directive.epoch, 2);
  EXPECT_EQ(decision.instruction->directive.members, (std::vector<WorkerId>{{0}, {1}, {2}}));
  // All make a new transport in the new epoch: the addresses of the old ones are not told any more.
  EXPECT_EQ(decision.instruction->addresses, std::vector<std::string>(3));
  EXPECT_EQ(decision.instruction->save_version, -1);
  // Before any worker is told, this is written down: the epoch, its members, and that no version is
  // agreed on yet.
  EXPECT_EQ(facts_of(decision.state), (Facts{.term = 1,
                                             .epoch = 2,
                                             .committed = 2,
                                             .target = -1,
                                             .members = {{0}, {1}, {2}},
                                             .incarnations = {0, 0, 0},
                                             .begun = true,
                                             .plan_name = "1",
                                             .previous_plan = "1",
                                             .treatments = run.state.rules.treatments}));
  ASSERT_TRUE(decision.wanted);
  EXPECT_FALSE(decision.wanted->cluster.workers[3].alive);
  EXPECT_TRUE(decision.wanted->terms.routes);
  EXPECT_TRUE(check(*decision.wanted->plan).ok());
  EXPECT_TRUE(decision.wanted->plan->schedule.lists[3].empty());
}

TEST(Recover, C1WithoutAnotherHolderTheRunIsSavedAndEnds) {
  Survival run;
  run.steps(2);
  run.die();
  run.die({1});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 75);  // no checkpoint yet
  EXPECT_EQ(
      run.state.ending->sentence,
      "worker 3 (stage 1 of pipeline 1) was killed by signal 9 in step 2; then worker 1 "
      "(stage 1 of pipeline 0) was killed by signal 9 in step 2; no live worker holds stage 1");
}

TEST(Recover, C1WithoutSurvivalADeathSavesACheckpoint) {
  Rules rules = surviving_rules();
  rules.survive = false;
  Survival run(rules);
  run.steps(2);
  run.die();
  EXPECT_EQ(run.state.situation, Situation::Salvaging);
  run.freeze();
  EXPECT_EQ(run.state.told.save_version, 2);
}

TEST(Recover, C1ASilentWorkerIsDeclaredDeadAndKilled) {
  Survival run;
  run.steps(1);
  Decision decision;
  for (int i = 0; i < 19; ++i) {
    run.now += kSecond / 10;
    for (size_t other = 0; other < 3; ++other) run.hear(run.reports[other]);
    decision = run.hear(Tick{});
  }
  EXPECT_EQ(run.state.situation, Situation::Running);
  run.now += kSecond / 10;
  decision = run.hear(Tick{});
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_EQ(decision.expelled, std::vector<WorkerId>{kDead});
  EXPECT_EQ(run.state.recovery.cause,
            "worker 3 (stage 1 of pipeline 1) was silent for 2.0 s in step 1");
}

TEST(Recover, C1ACoordinatorThatStalledDeclaresNobodyDead) {
  Survival run;
  run.steps(1);
  run.now += 100 * kSecond;
  run.hear(Tick{});
  EXPECT_EQ(run.state.situation, Situation::Running);
  run.now += kSecond;
  run.hear(Tick{});
  EXPECT_EQ(run.state.situation, Situation::Running);
  run.mute = true;
  run.pass(3 * kSecond);
  EXPECT_NE(run.state.situation, Situation::Running);
}

TEST(Recover, C1AWorkerThatPeersLostIsExpelled) {
  Survival run;
  run.steps(1);
  run.reports[2].lost_peers = {kDead};
  run.report(2);
  EXPECT_EQ(run.state.situation, Situation::Running);
  run.pass(kSecond);
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_EQ(run.state.recovery.dead, std::vector<WorkerId>{kDead});
  run.hear(Exited{kDead, true, 9, ""});  // the launcher has ended it
  EXPECT_EQ(run.state.epoch, 2);
}

TEST(Recover, C2AFurtherDeathWhileUndecidedBeginsAFurtherEpoch) {
  Survival run;
  run.steps(2);
  run.die();
  for (size_t i = 0; i < 2; ++i) {
    run.reports[i].epoch = 2;
    run.reports[i].phase = Phase::Frozen;
    run.report(i);
  }
  run.die({0});  // stage 0 is left to worker 2, stage 1 to worker 1
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_EQ(run.state.epoch, 3);
  EXPECT_EQ(run.state.told.directive.members, (std::vector<WorkerId>{{1}, {2}}));
  run.reports[2].epoch = 2;
  run.reports[2].phase = Phase::Frozen;
  run.report(2);  // for an epoch that is over
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  run.keep(run.freeze());
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_EQ(run.reasons.back(),
            "all live workers are at version 2: step 2 is done again without workers 3, 0, under "
            "plan 2 (1f1b)");
  run.run();
  run.steps(8);
  EXPECT_EQ(run.state.committed, 10);
}

TEST(Recover, C2AWorkerThatDoesNotFreezeIsDeclaredDead) {
  Rules rules = surviving_rules();
  rules.lost_limit = {};
  Survival run(rules);
  run.die();
  for (const size_t i : {1, 2}) {
    run.reports[i].epoch = 2;
    run.reports[i].phase = Phase::Frozen;
    run.report(i);
  }
  run.pass(59 * kSecond);  // worker 0 reports, but in the old epoch
  EXPECT_TRUE(run.state.members[0].alive);
  run.pass(2 * kSecond);
  EXPECT_FALSE(run.state.members[0].alive);
  EXPECT_EQ(run.state.epoch, 3);
}

TEST(Recover, C3ReportsOfTheDeadAndOfOldEpochsAreIgnored) {
  Survival run;
  run.steps(2);
  const std::vector<Report> before = run.reports;
  run.die();
  run.freeze();
  ASSERT_EQ(run.state.situation, Situation::Running);
  Report ghost = before[3];
  ghost.version = 3;
  ghost.sequence += 10;
  ghost.epoch = 2;
  run.hear(ghost);
  for (size_t i = 0; i < 3; ++i) run.hear(before[i]);
  EXPECT_EQ(run.state.committed, 2);
  run.run();
  run.take(0);
  run.take(1);
  run.hear(ghost);
  EXPECT_EQ(run.state.committed, 2);
  run.keep(run.take(2));
  EXPECT_EQ(run.state.committed, 3);
}

TEST(Recover, C4ACommitNeedsEveryMemberRunningInTheEpoch) {
  Survival run;
  run.steps(2);
  run.take(0);
  run.take(1);  // version 3, from the attempt that is abandoned
  run.die();
  run.freeze();
  ASSERT_EQ(run.state.situation, Situation::Running);
  EXPECT_EQ(run.state.committed, 2);
  // Worker 2 does the step before the others have undone theirs. Their version 3, reported while
  // frozen, does not count.
  run.reports[2].phase = Phase::Running;
  run.take(2);
  EXPECT_EQ(run.state.committed, 2);
  run.reports[0].phase = Phase::Running;
  run.reports[0].version = 2;
  run.report(0);
  run.take(0);
  EXPECT_EQ(run.state.committed, 2);
  run.reports[1].phase = Phase::Running;
  run.reports[1].version = 2;
  run.report(1);
  EXPECT_EQ(run.state.committed, 2);
  run.take(1);
  EXPECT_EQ(run.state.committed, 3);
}

TEST(Recover, C5TheEpochBeginsAtTheLeastVersion) {
  Survival run;
  run.steps(2);
  run.take(0);
  run.take(2);
  run.die();
  const Decision decision = run.freeze();
  EXPECT_STREQ(decision.event, "recovery");
  EXPECT_EQ(decision.reason,
            "all live workers are at version 2: step 2 is done again without worker 3, under "
            "plan 2 (1f1b)");
  EXPECT_TRUE(decision.steps.empty());
  ASSERT_TRUE(decision.instruction);
  EXPECT_TRUE(decision.new_plan);
  EXPECT_EQ(decision.instruction->directive.phase, Phase::Running);
  EXPECT_EQ(decision.instruction->directive.committed, 2);
  EXPECT_EQ(decision.instruction->plan_serial, 2);
  EXPECT_EQ(decision.instruction->plan_from, 2);
  EXPECT_EQ(facts_of(decision.state).target, 2);
  EXPECT_EQ(decision.state.planning.present->schedule.lists[3].size(), 0u);
  run.run();
  run.steps(8);
  EXPECT_EQ(run.state.committed, 10);
  for (const StepRecord& step : run.done) {
    EXPECT_TRUE(step.complete) << step.step;
    EXPECT_EQ(step.epoch, step.step < 2 ? 1 : 2);
  }
}

TEST(Recover, C5AStepThatAllHaveDoneIsCommitted) {
  Survival run;
  run.steps(2);
  for (const size_t i : {0, 1, 3, 2}) {
    if (i != 2) run.take(i);
  }
  run.reports[2].version = 3;  // done, but not reported before the death of worker 3
  run.reports[2].steps = {{.step = 2}};
  run.die();
  const Decision decision = run.freeze();
  EXPECT_EQ(run.state.committed, 3);
  ASSERT_EQ(decision.steps.size(), 1u);
  EXPECT_TRUE(decision.steps[0].complete);
  EXPECT_EQ(decision.reason,
            "all live workers are at version 3: step 3 begins without worker 3, under plan 2 "
            "(1f1b)");
  EXPECT_EQ(run.state.planning.from, 3);
}

TEST(Recover, C5AStepWithLostResultsIsRepeated) {
  for (const std::string what : {"a loss", "the held-out pass", "a checkpoint"}) {
    Rules rules = surviving_rules();
    if (what == "a checkpoint") rules.checkpoint_every = 3;
    Survival run(rules);
    run.steps(2);
    if (what != "a loss") run.take(3);
    run.die();
    for (size_t i = 0; i < 3; ++i) run.reports[i].version = 3;
    run.reports[1].steps = {{.step = 2, .losses = {{{0}, 3.0}}}};
    run.reports[2].steps = {{.step = 2, .broken_off = what == "the held-out pass"}};
    run.freeze();
    EXPECT_EQ(run.state.committed, 2) << what;
    EXPECT_EQ(run.state.situation, Situation::Running) << what;
    run.run();
    if (what == "a checkpoint") run.save(0), run.save(1);
    run.take_all();
    EXPECT_EQ(run.state.committed, 3) << what;
    EXPECT_EQ(run.state.storing, what == "a checkpoint" ? 3 : -1) << what;
  }
}

TEST(Recover, C5ShardsOfAnAbandonedAttemptDoNotCount) {
  Rules rules = surviving_rules();
  rules.checkpoint_every = 3;
  Survival run(rules);
  run.steps(2);
  run.reports[0].shards = {{3, "stage-0.safetensors", 7, "00", {0}}};
  run.take(0);
  EXPECT_EQ(run.state.shards[3].size(), 1u);
  run.die();
  run.freeze();
  EXPECT_TRUE(run.state.shards.empty());
  EXPECT_EQ(run.state.told.save_version, 3);
}

TEST(Recover, C5ANanLossEndsTheRun) {
  Survival run;
  run.steps(2);
  run.die();
  run.reports[1].steps = {{.step = 2, .losses = {{{0}, std::nan("")}}}};
  run.freeze();
  EXPECT_EQ(run.state.situation, Situation::Salvaging);
}

TEST(Recover, TheFirstRestartIsReportedWithTheTimeSinceTheDeath) {
  Survival run;
  run.steps(2);
  run.die();
  run.now += 40 * kMillisecond;
  run.freeze();
  run.now += 25 * kMillisecond;
  run.run();
  EXPECT_EQ(
      run.reasons.back(),
      "step 2 has begun again without worker 3, 65.0 ms after the coordinator heard of the loss");
  const size_t told = run.reasons.size();
  run.steps(2);
  EXPECT_EQ(run.reasons.size(), told);
}

TEST(Recover, APlanThatComesInTimeIsUsed) {
  Survival run;
  const Decision death = run.die();
  const auto better = std::make_shared<const Plan>([&] {
    Plan plan = *death.wanted->plan;
    plan.order = "auto";
    return plan;
  }());
  run.hear(Planned{death.wanted->request, better, "it is better"});
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  run.freeze();
  EXPECT_EQ(run.state.planning.present, better);
}

TEST(Recover, APlanThatComesTooLateIsRequestedAgain) {
  Rules rules = surviving_rules();
  rules.treatments.slow_links = Treatment::Adapt;
  rules.steps = 100;
  Survival run(rules);
  const Decision death = run.die();
  run.freeze();
  const auto recovered = run.state.planning.present;
  run.hear(Planned{death.wanted->request, run.state.rules.plan, "made for somebody else"});
  EXPECT_EQ(run.state.planning.present, recovered);
  run.run();
  run.steps(3);
  ASSERT_TRUE(run.wanted);
  EXPECT_GT(run.wanted->request, death.wanted->request);
  EXPECT_EQ(run.wanted->plan, recovered);
  EXPECT_TRUE(run.wanted->terms.routes);
  run.hear(Planned{run.wanted->request, nullptr, "nothing is faster"});
  run.steps(20);
  EXPECT_EQ(run.state.planning.present, recovered);
}

TEST(Recover, AStopIsHeardDuringRecovery) {
  Survival run;
  run.steps(2);
  run.die();
  run.hear(Request{Request::Kind::Stop, 15});
  EXPECT_EQ(run.state.stop_at, 3);
  run.freeze();
  run.run();
  run.take_all();
  EXPECT_EQ(run.state.committed, 3);
  const Decision saved = run.save_all();
  ASSERT_TRUE(saved.checkpoint);
  run.hear(Stored{3, ""});
  EXPECT_EQ(*run.state.ending, (Ending{143, "stopped by signal 15 after step 2"}));
}

TEST(Recover, ADeathAfterTheLastStepCostsNoStep) {
  Survival run;
  run.steps(10);
  EXPECT_EQ(run.state.committed, 10);
  EXPECT_FALSE(run.state.ending);
  run.die();
  const Decision decision = run.freeze();
  EXPECT_EQ(decision.reason, "all live workers are at version 10, the last");
  run.run();
  run.save_all();
  run.hear(Stored{10, ""});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(*run.state.ending, (Ending{0, ""}));
}

}  // namespace
}  // namespace tenuto
