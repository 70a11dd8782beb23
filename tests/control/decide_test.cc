// The decisions of control, case by case: each situation, each way to end, each sentence.
#include "control/decide.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "control/play.h"

namespace tenuto {
namespace {

TEST(Decide, AStepIsCommittedWhenEveryMemberHasReportedIt) {
  Play run;
  run.connect();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(run.step(i).steps.empty());
    EXPECT_EQ(run.state.committed, 0);
  }
  const Decision decision = run.step(3);
  EXPECT_EQ(run.state.committed, 1);
  ASSERT_TRUE(decision.instruction);
  EXPECT_EQ(decision.instruction->directive.committed, 1);
  ASSERT_EQ(decision.steps.size(), 1u);
  const StepRecord& step = decision.steps[0];
  EXPECT_EQ(step.step, 0);
  EXPECT_TRUE(step.complete);
  EXPECT_EQ(step.loss, (3.0 + 5.0) / 2);  // of micro 0 and micro 1
  EXPECT_EQ(step.learning_rate, 0.5);
  EXPECT_EQ(step.duration.count(), 3);  // of the slowest
  EXPECT_FALSE(step.validation_loss);
}

TEST(Decide, ReportsOfAnotherEpochOrPhaseDoNotCommit) {
  Play run;
  run.connect();
  for (size_t i = 0; i < 3; ++i) run.step(i);
  run.reports[3].phase = Phase::Frozen;
  run.step(3);
  EXPECT_EQ(run.state.committed, 0);
  run.reports[3].phase = Phase::Running;
  run.reports[3].epoch = 0;
  run.report(3);
  EXPECT_EQ(run.state.committed, 0);
  run.reports[3].epoch = 1;
  run.report(3);
  EXPECT_EQ(run.state.committed, 1);
}

TEST(Decide, AnOutdatedReportChangesNothing) {
  Play run;
  run.connect();
  const Report early = run.reports[0];
  for (size_t i = 0; i < 3; ++i) run.step(i);
  run.hear(early);
  run.step(3);
  EXPECT_EQ(run.state.committed, 1);
  Report stranger = run.reports[0];
  stranger.incarnation = 1;
  stranger.version = 0;
  stranger.sequence += 100;
  run.hear(stranger);
  EXPECT_EQ(run.state.members[0].report.version, 1);
}

TEST(Decide, AVersionThatIsSavedIsCommittedWithItsShards) {
  Play run;
  run.connect();
  EXPECT_EQ(run.state.told.save_version, 4);
  EXPECT_EQ(run.state.told.save_directory, "runs/small/checkpoint-4.tmp");
  EXPECT_EQ(run.state.told.savers, (std::vector<WorkerId>{{0}, {1}}));
  run.advance_to(3);
  run.step(2);
  run.step(3);
  EXPECT_EQ(run.state.committed, 3);  // a saver reports the version once it has saved it
  run.step(0);
  EXPECT_EQ(run.state.committed, 3);
  const Decision decision = run.step(1);
  EXPECT_EQ(run.state.committed, 4);
  ASSERT_TRUE(decision.checkpoint);
  EXPECT_EQ(decision.checkpoint->version, 4);
  EXPECT_EQ(decision.checkpoint->shards[1].file, "stage-1.safetensors");
  EXPECT_EQ(run.state.told.save_version, 8);
  run.hear(Stored{4, ""});
  EXPECT_EQ(run.state.saved, 4);
}

TEST(Decide, IfASaverDidNotSaveTheNextVersionIsSaved) {
  Play run;
  run.connect();
  run.advance_to(3);
  Decision decision;
  for (size_t i = 0; i < 4; ++i) {
    run.step(i);
    if (i == 0) run.reports[0].shards.clear(), run.state.shards.clear();  // did not save
    decision = run.report(i);
  }
  EXPECT_EQ(run.state.committed, 4);
  EXPECT_FALSE(decision.checkpoint);
  EXPECT_EQ(run.state.told.save_version, 5);
  for (size_t i = 0; i < 4; ++i) decision = run.step(i);
  ASSERT_TRUE(decision.checkpoint);
  EXPECT_EQ(decision.checkpoint->version, 5);
  EXPECT_EQ(run.state.told.save_version, 8);
}

// With asynchronous checkpoints a worker reports its shard some steps after the version, and the
// shards of the workers come in any order.
TEST(Decide, AVersionThatIsWrittenLaterIsSavedWhenAllShardsAreThere) {
  Rules rules = small_rules();
  rules.saves_later = true;
  Play run(rules);
  run.connect();
  run.advance_to(3);
  for (size_t i = 0; i < 4; ++i) {
    run.reports[i].version += 1;
    StepSummary summary{.step = 3, .start_ns = 100, .finish_ns = 101};
    if (i % 2 == 1) summary.losses = {{{static_cast<int32_t>(i / 2)}, 2.0}};
    run.reports[i].steps = {summary};
    EXPECT_FALSE(run.report(i).checkpoint);
  }
  EXPECT_EQ(run.state.committed, 4) << "steps do not wait for the files";
  EXPECT_EQ(run.state.told.save_version, 8) << "and no other version is asked for";
  run.reports[1].shards = {{4, "stage-1.safetensors", 7, "00", {1}}};
  EXPECT_FALSE(run.report(1).checkpoint) << "stage 0 is missing";
  EXPECT_EQ(run.state.saved, -1);
  run.step(2);
  run.reports[0].shards = {{4, "stage-0.safetensors", 7, "00", {0}}};
  const Decision decision = run.report(0);
  ASSERT_TRUE(decision.checkpoint);
  EXPECT_EQ(decision.checkpoint->version, 4);
  EXPECT_EQ(run.state.saved, -1) << "its manifest is not written yet";
  run.hear(Stored{4, ""});
  EXPECT_EQ(run.state.saved, 4);
}

TEST(Decide, AWishToEndSavesAndIsNoFailure) {
  Play run;
  run.connect();
  run.advance_to(2);
  run.hear(Request{Request::Kind::Stop, 0});
  EXPECT_EQ(run.state.stop_at, 3);
  EXPECT_EQ(run.state.told.save_version, 3);
  run.hear(Request{Request::Kind::Stop, 0});  // the script of another worker
  EXPECT_FALSE(run.state.ending);
  run.advance_to(3);
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(*run.state.ending, (Ending{0, "asked to end after step 2"}));
  EXPECT_EQ(run.state.saved, 3);
}

TEST(Decide, TheJobEndsWithACheckpoint) {
  Play run;
  run.connect();
  run.advance_to(10);
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(*run.state.ending, (Ending{0, ""}));
  EXPECT_EQ(run.state.saved, 10);
}

TEST(Decide, ACheckpointThatIsAskedForComesTwoVersionsLater) {
  Play run;
  run.connect();
  run.advance_to(1);
  run.hear(Request{Request::Kind::Checkpoint, 10});
  EXPECT_EQ(run.state.told.save_version, 3);
  run.advance_to(3);
  EXPECT_EQ(run.state.saved, 3);
  EXPECT_EQ(run.state.told.save_version, 4);
}

TEST(Decide, ARepairedConnectionIsReportedOnce) {
  Play run;
  run.connect();
  run.advance_to(2);
  run.reports[1].repairs = {{1, {2}, 2, 23'400'000}};
  const Decision first = run.report(1);
  ASSERT_EQ(first.repaired.size(), 1u);
  EXPECT_EQ(first.repaired[0].step, 2);
  EXPECT_EQ(first.repaired[0].sentence,
            "the connection between worker 1 and worker 2 broke in step 2 and was repaired after "
            "23.4 ms: no step is lost");
  EXPECT_TRUE(run.report(1).repaired.empty());
  run.reports[1].repairs.push_back({2, {0}, 2, 1'000'000});
  run.reports[1].repairs.push_back({3, {9}, 2, 1'000'000});  // nobody
  EXPECT_EQ(run.report(1).repaired.size(), 1u);
  EXPECT_EQ(run.state.situation, Situation::Running);
}

TEST(Decide, ASignalStopsAfterTheNewestStepThatAnyWorkerEnded) {
  Play run;
  run.connect();
  run.advance_to(2);
  run.step(0);  // worker 0 is at version 3 already
  const Decision decision = run.hear(Request{Request::Kind::Stop, 15});
  ASSERT_TRUE(decision.instruction);
  EXPECT_EQ(decision.instruction->directive.stop_at, 3);
  EXPECT_EQ(decision.instruction->save_version, 3);
  for (size_t i = 1; i < 4; ++i) run.step(i);
  EXPECT_EQ(run.state.committed, 3);  // so that a worker that has begun step 3 may abandon it
  EXPECT_FALSE(run.state.ending);
  run.reports[2].lost_peers = {{0}};  // because worker 0 abandons step 3 and drops its peers
  run.report(2);
  run.pass(kSecond);
  EXPECT_EQ(run.state.situation, Situation::Running);
  const Decision saved = run.save_all();
  ASSERT_TRUE(saved.checkpoint);
  run.hear(Stored{3, ""});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(*run.state.ending, (Ending{143, "stopped by signal 15 after step 2"}));
}

TEST(Decide, ASecondSignalEndsAtOnce) {
  Play run;
  run.connect();
  run.hear(Request{Request::Kind::Stop, 2});
  run.hear(Request{Request::Kind::Stop, 2});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 130);
}

TEST(Decide, AStepThatDoesNotEndInTimeIsAbandonedAtAStop) {
  Play run;
  run.connect();
  run.advance_to(2);
  run.hear(Request{Request::Kind::Stop, 15});
  run.pass(9 * kSecond);
  EXPECT_EQ(run.state.situation, Situation::Running);
  run.pass(2 * kSecond);
  EXPECT_EQ(run.state.situation, Situation::Salvaging);
  run.freeze();
  EXPECT_EQ(run.state.told.save_version, 2);
  run.save_all();
  run.hear(Stored{2, ""});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 143);
  EXPECT_EQ(run.state.saved, 2);
}

// Pipeline 0 has ended step 2. Worker 3 has ended it too, or dies in it before it reports its loss.
// Then the step is abandoned, though every stage has done it, because its loss is lost.
TEST(Decide, ADeathSavesTheNewestCommonVersionWithItsLosses) {
  for (const bool told : {true, false}) {
    Play run;
    run.connect();
    run.advance_to(2);
    run.step(0);
    run.step(1);
    if (told) run.step(3);
    const Decision decision = run.hear(Exited{{3}, true, 9});
    ASSERT_TRUE(decision.instruction);
    EXPECT_EQ(decision.instruction->directive.phase, Phase::Frozen);
    EXPECT_EQ(decision.instruction->directive.epoch, 2);
    EXPECT_EQ(decision.instruction->directive.members, (std::vector<WorkerId>{{0}, {1}, {2}}));
    const Decision agreed = run.freeze();
    // Stage 1 is left to worker 1, which has version 3; so has worker 0 of stage 0.
    EXPECT_EQ(run.state.told.save_version, told ? 3 : 2);
    EXPECT_EQ(run.state.told.savers, (std::vector<WorkerId>{{told ? 0 : 2}, {1}}));
    EXPECT_EQ(agreed.reason,
              told ? "version 3 is the newest that every stage still has"
                   : "version 2 is saved without the next step: the losses of 1 of its 2 "
                     "micro-batches are lost");
    // The step's record is written when it is decided that the step counts.
    ASSERT_EQ(agreed.steps.size(), told ? 1u : 0u);
    EXPECT_EQ(run.state.committed, told ? 3 : 2);
    if (told) {
      EXPECT_TRUE(agreed.steps[0].complete);
      EXPECT_EQ(agreed.steps[0].loss, 4.0);
    }
    const Decision saved = run.save_all();
    ASSERT_TRUE(saved.checkpoint);
    EXPECT_TRUE(saved.steps.empty());
    run.hear(Stored{told ? 3 : 2, ""});
    ASSERT_TRUE(run.state.ending);
    EXPECT_EQ(*run.state.ending,
              (Ending{75, cat("worker 3 (stage 1 of pipeline 1) was killed by signal 9 in step ",
                              told ? 3 : 2)}));
  }
}

// If a worker does not report its losses, the step is not committed, and the run says why.
TEST(Decide, AStepWithoutAllItsLossesIsNotCommitted) {
  for (const bool passes : {false, true}) {
    Play run;
    run.connect();
    run.advance_to(2);
    for (size_t i = 0; i < 4; ++i) {
      run.reports[i].version = 3;
      run.reports[i].steps = {{.step = 2, .broken_off = passes && i == 3}};
      if (i == 1 || (passes && i == 3)) {
        run.reports[i].steps[0].losses = {{{static_cast<int32_t>(i / 2)}, 2.0}};
      }
      run.report(i);
    }
    EXPECT_EQ(run.state.committed, 2);
    EXPECT_EQ(run.state.situation, Situation::Salvaging);
    run.freeze();
    EXPECT_EQ(run.state.told.save_version, 2);
    run.save_all();
    run.hear(Stored{2, ""});
    EXPECT_EQ(
        run.state.ending,
        (Ending{75, passes ? "all workers have finished step 2, but its validation was not finished"
                           : "all workers have finished step 2, but the losses of 1 of its 2 "
                             "micro-batches are lost"}));
  }
}

TEST(Decide, AWorkerThatIsAheadUndoesItsStep) {
  Play run;
  run.connect();
  run.advance_to(2);
  run.step(0);
  run.step(2);  // stage 0 has stepped on both pipelines, stage 1 on none
  run.hear(Exited{{2}, true, 9});
  run.freeze();
  EXPECT_EQ(run.state.told.save_version, 2);
  EXPECT_EQ(run.state.told.savers, (std::vector<WorkerId>{{0}, {1}}));
  run.save_all();
  run.hear(Stored{2, ""});
  EXPECT_EQ(run.state.saved, 2);
  EXPECT_EQ(run.state.ending->exit_code, 75);
}

TEST(Decide, WithoutAHolderTheLastCheckpointIsUsed) {
  for (const int64_t steps : {2, 5}) {
    Play run;
    run.connect();
    run.advance_to(steps);
    run.hear(Exited{{1}, true, 9});
    const Decision last = run.hear(Exited{{3}, false, 1});
    ASSERT_TRUE(run.state.ending);
    EXPECT_EQ(run.state.ending->exit_code, 75);          // may be tried again, saved or not
    EXPECT_EQ(last.reason, run.state.ending->sentence);  // each cause once
    EXPECT_EQ(run.state.ending->sentence,
              cat("worker 1 (stage 1 of pipeline 0) was killed by signal 9 in step ", steps,
                  "; then worker 3 (stage 1 of pipeline 1) ended with exit code 1 in step ", steps,
                  "; no live worker holds stage 1"));
  }
}

TEST(Decide, ALostPeerIsExplainedByItsDeath) {
  Play run;
  run.connect();
  run.reports[2].lost_peers = {{3}};
  run.report(2);
  run.reports[0].lost_peers = {{2}};  // worker 2 has given up the step and dropped worker 0
  run.report(0);
  EXPECT_EQ(run.state.situation, Situation::Running);
  run.hear(Exited{{3}, true, 11});
  EXPECT_EQ(run.state.salvage.cause,
            "worker 3 (stage 1 of pipeline 1) was killed by signal 11 in step 0");
  run.pass(2 * kSecond);
  EXPECT_TRUE(run.state.members[2].alive);
}

TEST(Decide, AWorkerThatPeersLostIsDeclaredDead) {
  Play run;
  run.connect();
  run.reports[2].lost_peers = {{3}};
  run.report(2);
  run.pass(kSecond / 10);
  run.reports[0].lost_peers = {{2}};
  run.report(0);
  run.hear(StreamEnded{{3}, 0});
  run.pass(kSecond);
  EXPECT_FALSE(run.state.members[3].alive);
  EXPECT_TRUE(run.state.members[2].alive);
  EXPECT_EQ(run.state.salvage.cause,
            "worker 3 (stage 1 of pipeline 1) lost its connection to the coordinator in step 0");
}

TEST(Decide, ASilentWorkerIsDead) {
  Play run;
  run.connect();
  run.mute = true;
  run.pass(59 * kSecond);
  EXPECT_EQ(run.state.situation, Situation::Running);
  for (size_t i = 0; i < 3; ++i) run.hear(run.reports[i]);
  run.pass(2 * kSecond);
  EXPECT_EQ(run.state.salvage.cause,
            "worker 3 (stage 1 of pipeline 1) was silent for 60.0 s in step 0");
}

TEST(Decide, AWorkerSilentWhileSalvagingIsDeclaredDead) {
  Play run;
  run.connect();
  run.advance_to(1);
  run.hear(Exited{{3}, true, 9});
  run.reports[0].epoch = run.reports[1].epoch = 2;
  run.reports[0].phase = run.reports[1].phase = Phase::Frozen;
  run.report(0);
  run.report(1);
  run.pass(11 * kSecond);
  EXPECT_FALSE(run.state.members[2].alive);
  EXPECT_EQ(run.state.epoch, 3);
  run.freeze();
  run.save_all();
  run.hear(Stored{1, ""});
  EXPECT_EQ(run.state.ending->exit_code, 75);
}

TEST(Decide, ANanLossEndsTheRunBeforeItsStep) {
  for (const bool skipped : {true, false}) {
    Play run;
    run.connect();
    run.advance_to(2);
    StepSummary summary{.step = 2, .losses = {{{0}, std::nan("")}}, .finite = !skipped};
    run.reports[1].steps = {summary};
    run.reports[1].version = 3;
    run.report(1);
    EXPECT_EQ(run.state.situation, Situation::Salvaging);
    for (size_t i = 0; i < 4; ++i) run.reports[i].version = 3;
    run.freeze();
    EXPECT_EQ(run.state.told.save_version, 2);
    run.save_all();
    run.hear(Stored{2, ""});
    ASSERT_TRUE(run.state.ending);
    EXPECT_EQ(*run.state.ending,
              (Ending{1,
                      "loss or gradient of step 2 is not finite (seen by worker 1 (stage 1 of "
                      "pipeline 0)): the step was not committed; lower "
                      "optimizer.learning_rate or optimizer.clip"}));
  }
}

TEST(Decide, AFullDiskEndsTheRunAndKeepsTheCheckpoint) {
  Play run;
  run.connect();
  run.advance_to(5);
  run.reports[0].failure = "cannot write runs/small/checkpoint-8.tmp: No space left on device";
  run.reports[0].failure_code = Code::Exhausted;
  run.report(0);
  EXPECT_EQ(run.state.situation, Situation::Salvaging);
  run.freeze();
  run.reports[0].failure = "No space left on device";
  run.report(0);
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 1);
  EXPECT_EQ(run.state.saved, 4);
  EXPECT_EQ(run.state.ending->sentence,
            "worker 0 (stage 0 of pipeline 0): cannot write runs/small/checkpoint-8.tmp: No space "
            "left on device; the checkpoint could not be saved: worker 0 (stage 0 of pipeline 0): "
            "No space "
            "left on device");
}

TEST(Decide, AHangIsResumable) {
  Play run;
  run.connect();
  run.advance_to(1);
  run.reports[2].failure = "no op or message completed for 60000 ms";
  run.reports[2].failure_code = Code::Timeout;
  run.report(2);
  run.freeze();
  run.save_all();
  run.hear(Stored{1, ""});
  EXPECT_EQ(
      *run.state.ending,
      (Ending{75, "worker 2 (stage 0 of pipeline 1): no op or message completed for 60000 ms"}));
}

TEST(Decide, AManifestThatCannotBeWrittenEndsTheRun) {
  Play run;
  run.connect();
  run.advance_to(3);
  for (size_t i = 0; i < 4; ++i) run.step(i);
  run.hear(Stored{4, "cannot write manifest.json"});
  EXPECT_EQ(*run.state.ending, (Ending{1, "cannot write manifest.json"}));
  EXPECT_EQ(run.state.saved, -1);
}

TEST(Decide, AResumedRunBeginsWhereItWasSaved) {
  Rules rules = small_rules();
  rules.first_step = rules.saved = 4;
  rules.epoch = 3;
  rules.resume_shards = {"a", "b"};
  Play run(rules);
  EXPECT_EQ(run.state.told.resume_shards.size(), 2u);
  run.connect();
  EXPECT_EQ(run.state.told.directive.committed, 4);
  EXPECT_EQ(run.state.told.directive.first_step, 4);
  EXPECT_EQ(run.state.told.save_version, 8);
  run.hear(Exited{{0}, true, 9});  // before the first step, so nothing has to be saved
  run.freeze();
  EXPECT_EQ(run.state.ending->exit_code, 75);
  EXPECT_EQ(run.state.saved, 4);
}

}  // namespace
}  // namespace tenuto
