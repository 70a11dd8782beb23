// The decisions of control before the first step: who is waited for, who is replaced, and how the
// run ends when somebody cannot come.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "control/decide.h"
#include "control/play.h"
#include "control/take_up.h"

namespace tenuto {
namespace {

TEST(Decide, NoWorkerRunsBeforeAllAreConnected) {
  Play run;
  EXPECT_EQ(run.state.told.directive.phase, Phase::Frozen);
  for (size_t i = 0; i < 3; ++i) {
    run.reports[i].address = cat("host:", i);
    run.reports[i].connected = true;
    const Decision decision = run.report(i);
    ASSERT_TRUE(decision.instruction);
    EXPECT_EQ(decision.instruction->addresses[i], cat("host:", i));
    EXPECT_EQ(decision.instruction->directive.phase, Phase::Frozen);
  }
  run.reports[3].connected = true;
  const Decision decision = run.report(3);
  ASSERT_TRUE(decision.instruction);
  EXPECT_EQ(decision.instruction->directive.phase, Phase::Running);
  EXPECT_EQ(decision.reason, "all 4 workers are connected: step 0 begins");
}

// A worker that holds no stage is not a member: nobody waits for it.
TEST(Decide, ARunBeginsWithoutAnAbsentWorker) {
  Rules rules = small_rules();
  rules.stages[1].holders = {{3}};
  rules.pipelines = 2;
  rules.micro_count = 1;  // worker 1 tells no loss
  Play run(rules);
  EXPECT_EQ(run.state.told.directive.members, (std::vector<WorkerId>{{0}, {2}, {3}}));
  EXPECT_EQ(name_of(rules, {3}), "worker 3 (stage 1 of pipeline 1)");
  run.connect();
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_FALSE(run.state.members[1].heard);
  for (const size_t worker : {0, 2, 3}) run.step(worker);
  EXPECT_EQ(run.state.committed, 1);
  run.advance_to(5);
  EXPECT_EQ(run.state.saved, 4);
  run.hear(Exited{{3}, true, 9, ""});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 75);
  EXPECT_EQ(run.state.ending->sentence,
            "worker 3 (stage 1 of pipeline 1) was killed by signal 9 in step 5; no live worker "
            "holds stage 1");
}

TEST(Decide, AWorkerThatDoesNotConnectIsNamed) {
  Play run;
  run.reports[2].connected = true;
  run.report(2);
  run.pass(29 * kSecond);
  EXPECT_FALSE(run.state.ending);
  run.pass(31 * kSecond);
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 75);
  EXPECT_EQ(run.state.ending->sentence,
            "for 30.0 s no further worker became ready; not ready: worker 0, worker 1, worker 3; "
            "read their "
            "logs, or raise network.connect_seconds");
}

// Another process takes the place of one that dies before the first step, and all connect anew.
TEST(Decide, AWorkerDeadBeforeTheFirstStepIsReplaced) {
  for (const bool heard : {true, false}) {
    Rules rules = small_rules();
    rules.restarts = 2;
    Play run(rules);
    for (const size_t worker : {0, 1}) {
      if (worker == 1 && !heard) continue;
      run.reports[worker].address = cat("host:", worker);
      run.reports[worker].connected = true;
      run.report(worker);
    }
    const Decision lost = run.hear(Exited{{1}, true, 9, ""});
    EXPECT_FALSE(run.state.ending);
    EXPECT_STREQ(lost.event, "death");
    EXPECT_EQ(lost.reason,
              "worker 1 (stage 1 of pipeline 0) was killed by signal 9 before its first step: the "
              "coordinator waits for a new process (restart 1 of 2 resilience.restarts)");
    EXPECT_EQ(run.state.epoch, 2);
    EXPECT_EQ(run.state.told.directive.members.size(), 4u);
    EXPECT_EQ(run.state.told.incarnations, (std::vector<int32_t>{0, -1, -1, -1}));
    // Addresses of the previous epoch are no longer told.
    EXPECT_EQ(run.state.told.addresses, std::vector<std::string>(4));
    // A late report of the dead process is ignored; a report of an earlier epoch does not count as
    // connected.
    run.report(1);
    EXPECT_FALSE(run.state.members[1].heard);
    run.reports[1] = {.worker = {1}, .incarnation = 1};
    for (Report& report : run.reports) report.epoch = 2;
    run.reports[0].epoch = 1;
    run.connect();
    EXPECT_EQ(run.state.situation, Situation::Gathering);
    run.reports[0].epoch = 2;
    run.connect();
    EXPECT_EQ(run.state.situation, Situation::Running);
    EXPECT_EQ(run.state.planning.present_name, "2");  // the plan of the epoch
    run.advance_to(10);
    EXPECT_EQ(run.state.ending, (Ending{0, ""}));
  }
}

// A worker that never reports is expelled after some time, and another process replaces it. The end
// of the old process's stream comes late and does not count as another death.
TEST(Decide, AWorkerThatDoesNotConnectIsReplaced) {
  Rules rules = small_rules();
  rules.restarts = 1;
  Play run(rules);
  for (const size_t worker : {0, 1, 3}) run.report(worker);
  run.pass(14 * kSecond);
  EXPECT_EQ(run.state.epoch, 1);
  Decision late;
  for (int moment = 0; moment < 8 && run.state.epoch == 1; ++moment) {
    run.now += kSecond / 4;
    late = run.report(0);
  }
  EXPECT_EQ(late.expelled, std::vector<WorkerId>{{2}});
  EXPECT_NE(late.reason.find(
                "worker 2 (stage 0 of pipeline 1) did not connect within 15.0 s "
                "before its first step: the coordinator waits for a new process (restart 1 of 1"),
            std::string::npos)
      << late.reason;
  EXPECT_EQ(run.state.epoch, 2);
  run.hear(StreamEnded{{2}, 0});
  run.pass(kSecond);
  EXPECT_EQ(run.state.epoch, 2);
  run.reports[2].incarnation = 1;
  for (Report& report : run.reports) report.epoch = 2;
  run.connect();
  EXPECT_EQ(run.state.situation, Situation::Running);
}

// A silent worker is expelled. The later end of its process does not count as another death.
TEST(Decide, AWorkerSilentBeforeTheFirstStepIsReplacedOnce) {
  Rules rules = small_rules();
  rules.restarts = 1;
  rules.lost_limit = 2 * kSecond;
  Play run(rules);
  run.report(1);
  run.report(2);
  Decision lost;
  while (run.state.epoch == 1 && run.now < 3 * kSecond) {
    run.now += kSecond / 4;
    lost = run.report(2);
  }
  EXPECT_EQ(lost.expelled, std::vector<WorkerId>{{1}});
  EXPECT_EQ(run.state.epoch, 2);
  run.hear(Exited{{1}, true, 9, ""});
  EXPECT_EQ(run.state.epoch, 2);
  EXPECT_FALSE(run.state.ending);
  run.reports[1].incarnation = 1;
  run.report(1);
  EXPECT_TRUE(run.state.members[1].heard);
  run.hear(Exited{{1}, true, 11, ""});
  EXPECT_EQ(run.state.ending,
            (Ending{75,
                    "worker 1 (stage 1 of pipeline 0) was killed by signal 11 before its first "
                    "step, and has no restarts left after death 2"}));
}

// A run whose worker was killed may be tried again (75). A worker that exited with an error would
// do so again (1). This does not depend on a saved checkpoint.
TEST(Decide, WithoutRestartsADeathBeforeTheFirstStepEndsTheRun) {
  for (const int64_t saved : {-1, 4}) {
    Rules rules = small_rules();
    rules.saved = saved;
    Play killed(rules), ended(rules), later(rules), cut_off(rules);
    killed.hear(Exited{{1}, true, 9, ""});
    EXPECT_EQ(killed.state.ending->exit_code, 75);
    ended.hear(Exited{{1}, false, 3, "no such device"});
    EXPECT_EQ(ended.state.ending->exit_code, 1);
    later.hear(Exited{{1}, false, 75, "the coordinator is gone"});
    EXPECT_EQ(later.state.ending->exit_code, 75);
    cut_off.reports[1].failure = "worker 1 could not reach worker 2";
    cut_off.reports[1].failure_code = Code::Timeout;
    cut_off.report(1);
    EXPECT_EQ(cut_off.state.ending->exit_code, 75);
  }
}

// A death begins another epoch. A worker that has not heard of it yet stays alive. A process of the
// previous run is in an epoch before the first one of this run, and is ignored.
TEST(Decide, ReportsOfAnEarlierGatheringEpochAreHeard) {
  Rules rules = small_rules();
  rules.restarts = 1;
  rules.epoch = 5;
  rules.lost_limit = 2 * kSecond;
  Play run(rules);
  run.reports[0].epoch = 3;
  run.report(0);
  EXPECT_FALSE(run.state.members[0].heard);
  run.reports[0].epoch = 5;
  run.reports[0].lost_peers = {{1}};
  run.report(0);
  EXPECT_TRUE(run.state.members[0].heard);
  run.hear(Exited{{1}, true, 9, ""});
  EXPECT_EQ(run.state.epoch, 6);
  EXPECT_TRUE(run.state.members[0].lost.empty());
  while (run.now < 4 * kSecond) {
    run.now += kSecond / 4;
    run.report(0);
  }
  EXPECT_EQ(run.state.epoch, 6);
  EXPECT_FALSE(run.state.ending);
}

// The next coordinator of a run that has not begun gathers the workers in the same epoch.
TEST(Decide, TheNextCoordinatorBeginsAWaitingRun) {
  Rules rules = small_rules();
  rules.restarts = 1;
  Play run(rules);
  run.hear(Exited{{1}, true, 9, ""});
  EXPECT_FALSE(facts_of(run.state).begun);
  rules.term = 2;
  const State next = take_up_beginning(rules, facts_of(run.state), {});
  EXPECT_EQ(next.situation, Situation::Gathering);
  EXPECT_EQ(next.epoch, 2);
  run.hear(Exited{{1}, true, 9, ""});
  ASSERT_TRUE(run.state.ending);
  EXPECT_FALSE(facts_of(run.state).begun);
  const State over = take_up_beginning(rules, facts_of(run.state), {});
  EXPECT_EQ(over.situation, Situation::Ended);
  EXPECT_EQ(over.ending, run.state.ending);
  EXPECT_EQ(over.told.directive.phase, Phase::Out);
}

TEST(Decide, AWorkerThatCannotStartEndsTheRunWithItsError) {
  Play run;
  run.reports[1].failure = "there is no file a.txt";
  run.reports[1].failure_code = Code::Invalid;
  run.report(1);
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(*run.state.ending,
            (Ending{2, "worker 1 (stage 1 of pipeline 0): there is no file a.txt"}));
  EXPECT_EQ(run.state.told.directive.phase, Phase::Out);
}

}  // namespace
}  // namespace tenuto
