// How a process takes the place of a lost worker, rule by rule. J1 to J6 and C3 are the rules of
// the join protocol, docs/decisions/027.
#include "control/join.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "control/instruct.h"
#include "control/recover.h"
#include "control/survival.h"
#include "control/take_up.h"
#include "ir/check.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

// Worker 3 has died in step 2 and the others have gone on without it.
class Return : public Survival {
 public:
  explicit Return(const Rules& rules = surviving_rules()) : Survival(rules) {
    steps(2);
    die();
    freeze();
    run();
    steps(3);
  }

  Report& joiner() { return reports[static_cast<size_t>(kDead.value)]; }
  // The second process of worker 3 comes forward; it reports only its name.
  Decision come_forward(int32_t incarnation = 1) {
    joiner() = {};
    joiner().worker = kDead;
    joiner().incarnation = incarnation;
    return report(3);
  }
  // It has its device and its transport.
  Decision make_ready() {
    joiner().epoch = state.epoch;
    joiner().address = "127.0.0.1:9000";
    joiner().connected = true;
    return report(3);
  }
  // All workers have connected to it, so the plan with its place comes into force, and it takes
  // part from there on.
  void take_place() {
    acknowledge();
    while (state.committed + 1 < state.planning.from) step_of({0, 1, 2});
    joiner().version = state.planning.from;
    joiner().phase = Phase::Running;
    keep(report(3));
  }
  void acknowledge() {
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive) continue;
      reports[i].plan = state.planning.serial;
      keep(report(i));
    }
  }
  void step_of(const std::vector<size_t>& workers) {
    for (const size_t i : workers) keep(take(i));
  }
  Decision learn() {
    joiner().received = joiner().version;
    return report(3);
  }
  const Member& place() const { return state.members[static_cast<size_t>(kDead.value)]; }
};

TEST(Join, J1AnInvitedJoinerIsInNoPlanAndNoCommit) {
  Return run;
  const int64_t serial = run.state.planning.serial, epoch = run.state.epoch;
  const Decision decision = run.come_forward();
  EXPECT_STREQ(decision.event, "join");
  EXPECT_EQ(decision.reason, "worker 3 (stage 1 of pipeline 1) returns");
  ASSERT_TRUE(decision.instruction);
  EXPECT_EQ(decision.instruction->joiners, (std::vector<Joiner>{{kDead, 1, {{1}}, {}, -1}}));
  EXPECT_EQ(decision.instruction->directive.members, (std::vector<WorkerId>{{0}, {1}, {2}}));
  EXPECT_EQ(run.state.planning.serial, serial);
  EXPECT_EQ(run.state.epoch, epoch);
  const int64_t before = run.state.committed;
  run.step_of({0, 1, 2});
  EXPECT_EQ(run.state.committed, before + 1);
}

TEST(Join, C3OnlyAHigherIncarnationMayTakeAFreePlace) {
  Return run;
  EXPECT_FALSE(run.come_forward(0).instruction) << "the dead speaks on";
  EXPECT_EQ(run.place().joining, Joining::No);
  // A second process for a worker that lives is not heard.
  Report second = run.reports[1];
  second.incarnation = 5;
  second.sequence = 1000;
  second.version = 1;
  const Report before = run.state.members[1].report;
  EXPECT_FALSE(run.hear(second).instruction);
  EXPECT_EQ(run.state.members[1].report, before);
  EXPECT_EQ(run.state.members[1].joining, Joining::No);
}

TEST(Join, C3ALaterJoinerReplacesTheEarlierOne) {
  Return run;
  run.come_forward(1);
  run.come_forward(2);
  ASSERT_EQ(run.state.told.joiners.size(), 1U);
  EXPECT_EQ(run.state.told.joiners[0].incarnation, 2);
  Report first = run.joiner();
  first.incarnation = 1;
  first.sequence = 50;
  EXPECT_FALSE(run.hear(first).instruction);
}

TEST(Join, J2ItsFirstPlanGivesItADonorButNoWork) {
  Return run;
  run.come_forward();
  const Decision decision = run.make_ready();
  EXPECT_STREQ(decision.event, "join");
  EXPECT_EQ(decision.reason,
            "plan 3 (1f1b) is proposed: worker 3 (stage 1 of pipeline 1) receives the state");
  ASSERT_TRUE(decision.instruction);
  EXPECT_TRUE(decision.new_plan);
  EXPECT_EQ(decision.instruction->joiners, (std::vector<Joiner>{{kDead, 1, {{1}}, {{1}}, 3}}));
  EXPECT_EQ(decision.instruction->directive.members, (std::vector<WorkerId>{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(decision.instruction->addresses[3], "127.0.0.1:9000");
  EXPECT_EQ(decision.instruction->incarnations, (std::vector<int32_t>{0, 0, 0, 1}));
  EXPECT_EQ(facts_of(run.state).members, decision.instruction->directive.members);
  const Plan& plan = *run.plan_of_now();
  EXPECT_TRUE(check(plan).ok());
  EXPECT_EQ(plan.stages[1].holders, (std::vector<WorkerId>{{1}, {3}}));
  for (const Op& op : plan.schedule.lists[3]) {
    const bool shared =
        op.kind == OpKind::Reduce || op.kind == OpKind::Measure || op.kind == OpKind::Step;
    const bool tells = (op.kind == OpKind::Send || op.kind == OpKind::Recv) &&
                       (op.moved == ValueKind::Norm || op.moved == ValueKind::ClipDecision);
    EXPECT_TRUE(shared || tells) << static_cast<int>(op.kind);
  }
  EXPECT_TRUE(plan.evaluation.lists[3].empty());
}

TEST(Join, J5AllWaitForItOnceItsPlanIsInForce) {
  Return run;
  run.come_forward();
  run.make_ready();
  const int64_t before = run.state.committed;
  run.step_of({0, 1, 2});
  EXPECT_EQ(run.state.committed, before + 1);
  run.take_place();
  const int64_t from = run.state.planning.from;
  EXPECT_EQ(from, before + 3);
  EXPECT_EQ(run.state.epoch, 2) << "no epoch begins";
  while (run.state.committed < from) run.step_of({0, 1, 2});
  run.step_of({0, 1, 2});
  EXPECT_EQ(run.state.committed, from) << "version " << from + 1 << " is also its own";
  run.keep(run.take(3));
  EXPECT_EQ(run.state.committed, from + 1);
}

TEST(Join, J4ItHasWorkOnceItsReceivedVersionIsCommitted) {
  Return run;
  run.come_forward();
  run.make_ready();
  run.take_place();
  const int64_t from = run.state.planning.from;
  while (run.state.committed < from) run.step_of({0, 1, 2});
  run.keep(run.take(3));
  run.learn();  // a version that is not committed yet
  EXPECT_EQ(run.joiner().received, from + 1);
  EXPECT_EQ(run.place().joining, Joining::Receiving);
  run.step_of({0, 1, 2});
  EXPECT_EQ(run.state.committed, from + 1);
  EXPECT_EQ(run.place().joining, Joining::No);
  EXPECT_TRUE(run.state.told.joiners.empty());
  // All workers are there again: the first plan is proposed, and its step is agreed on later.
  EXPECT_EQ(run.state.planning.present, run.state.rules.plan);
  EXPECT_EQ(run.state.planning.from, -1);
  EXPECT_EQ(run.reasons.back(),
            cat("plan 4 (1f1b) is proposed: worker 3 (stage 1 of pipeline 1) has the state of "
                "version ",
                from + 1));
  EXPECT_TRUE(run.state.planning.monitor->cluster.workers[3].alive);
}

TEST(Join, J4AnotherPlanWaitsForTheStateTransfer) {
  Rules rules = surviving_rules();
  rules.treatments.slow_links = Treatment::Adapt;
  Return run(rules);
  run.wanted.reset();
  run.hear(Planned{run.state.planning.request, nullptr, ""});
  run.come_forward();
  run.make_ready();
  run.take_place();
  run.state.planning.stale = true;
  while (run.state.committed < run.state.planning.from) run.step_of({0, 1, 2});
  run.step_of({0, 1, 2, 3});
  run.step_of({0, 1, 2, 3});
  EXPECT_FALSE(run.wanted) << "a search would give work to whoever holds the stage";
  EXPECT_TRUE(run.state.planning.stale);
}

TEST(Join, J6ItsDeathBeforeItHasAPlaceChangesNothing) {
  Return run;
  run.come_forward();
  const Decision decision = run.die();
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_EQ(run.state.epoch, 2);
  EXPECT_TRUE(run.state.told.joiners.empty());
  EXPECT_EQ(decision.reason,
            "worker 3 (stage 1 of pipeline 1) does not join: its process was killed "
            "by signal 9");
  run.make_ready();
  EXPECT_EQ(run.place().joining, Joining::No) << "what it said last comes late";
  run.come_forward(2);
  EXPECT_EQ(run.place().joining, Joining::Invited);
}

TEST(Join, J6ItsDeathAfterItHasAPlaceBeginsAnEpoch) {
  Return run;
  run.come_forward();
  run.make_ready();
  run.take_place();
  const Decision decision = run.die();
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_EQ(run.state.epoch, 3);
  EXPECT_EQ(decision.instruction->directive.members, (std::vector<WorkerId>{{0}, {1}, {2}}));
  EXPECT_TRUE(decision.instruction->joiners.empty());
  run.freeze();
  run.run();
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_TRUE(run.plan_of_now()->schedule.lists[3].empty());
  run.come_forward(2);
  EXPECT_EQ(run.place().joining, Joining::Invited);
}

TEST(Join, J6AfterADeathItReceivesTheStateAnew) {
  Rules rules = surviving_rules();
  Return run(rules);
  run.come_forward();
  run.make_ready();
  run.take_place();
  // Worker 0 dies: stage 0 still has worker 2, and stage 1 still has the donor, worker 1.
  const Decision decision = run.die({0});
  EXPECT_EQ(run.state.situation, Situation::Recovering);
  EXPECT_EQ(decision.instruction->directive.members, (std::vector<WorkerId>{{1}, {2}}));
  ASSERT_EQ(decision.instruction->joiners.size(), 1U);
  EXPECT_TRUE(decision.instruction->joiners[0].donors.empty());
  EXPECT_EQ(run.place().joining, Joining::Invited);
  run.freeze();
  run.run();
  run.step_of({1, 2});
  run.step_of({1, 2});
  EXPECT_TRUE(run.plan_of_now()->schedule.lists[3].empty());
  run.make_ready();  // in the new epoch, with a new wire
  EXPECT_EQ(run.place().joining, Joining::Receiving);
  EXPECT_EQ(run.place().place.donors, (std::vector<WorkerId>{{1}}));
}

TEST(Join, I7AnIncompleteJoinerHoldsNoStage) {
  Return run;
  run.come_forward();
  run.make_ready();
  run.take_place();
  // Its donor was the last holder of stage 1: the joiner cannot replace it.
  const Decision decision = run.die({1});
  EXPECT_NE(run.state.situation, Situation::Recovering);
  for (const WorkerId saver : decision.state.told.savers) EXPECT_NE(saver, kDead);
  EXPECT_EQ(std::count(run.state.told.directive.members.begin(),
                       run.state.told.directive.members.end(), kDead),
            0);
}

TEST(Join, I7AnIncompleteJoinerSavesNothing) {
  Rules rules = surviving_rules();
  rules.checkpoint_every = 1;
  Return run(rules);
  run.come_forward();
  run.make_ready();
  for (const WorkerId saver : run.state.told.savers) EXPECT_NE(saver, kDead);
}

TEST(Join, AJoinerThatFailsToPrepareIsForgotten) {
  Return run;
  run.come_forward();
  run.joiner().failure = "there is no such device";
  const Decision decision = run.report(3);
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_EQ(run.place().joining, Joining::No);
  EXPECT_EQ(decision.reason,
            "worker 3 (stage 1 of pipeline 1) does not join: there is no such "
            "device");
}

TEST(Join, ASilentJoinerIsForgotten) {
  Return run;
  run.come_forward();
  for (int i = 0; i < 8; ++i) run.pass(8 * kSecond);
  EXPECT_EQ(run.place().joining, Joining::No);
  EXPECT_EQ(run.state.situation, Situation::Running);
}

TEST(Join, SeveralJoinersComeAtOnce) {
  Rules rules = surviving_rules();
  Survival run(rules);
  run.steps(2);
  for (const WorkerId dead : {WorkerId{0}, kDead}) {
    run.die(dead);
    run.freeze();
    run.run();
  }
  run.steps(3);
  for (const size_t worker : {size_t{0}, size_t{3}}) {
    Report& of = run.reports[worker];
    of = {};
    of.worker = {static_cast<int32_t>(worker)};
    of.incarnation = 1;
    run.report(worker);
    of.epoch = run.state.epoch;
    of.address = "somewhere";
  }
  run.reports[0].connected = run.reports[3].connected = true;
  run.keep(run.report(0));
  EXPECT_EQ(run.state.members[0].joining, Joining::Receiving);
  run.keep(run.report(3));
  // The other joiner waits until another plan may be proposed.
  EXPECT_EQ(run.state.members[3].joining, Joining::Invited);
  EXPECT_EQ(run.state.members[0].place.donors, (std::vector<WorkerId>{{2}}));
}

// --- Growing ------------------------------------------------------------------------------------

// The rules of surviving_rules(), without the workers in `absent` at the beginning.
Rules growing_rules(const std::vector<WorkerId>& absent) {
  Rules rules = surviving_rules();
  rules.steps = 100;
  rules.whole = rules.plan;
  std::vector<bool> alive(4, true);
  for (const WorkerId worker : absent) alive[static_cast<size_t>(worker.value)] = false;
  rules.plan = std::make_shared<const Plan>(without_workers(*rules.whole, alive).value());
  return rules;
}

// A run that begins without some workers; they may come after three steps.
class Growth : public Survival {
 public:
  explicit Growth(const std::vector<WorkerId>& absent) : Survival(growing_rules(absent)) {
    steps(3);
  }
  // Control's part of a join: the worker comes forward, gets its place, the state and work.
  void come(WorkerId worker, int32_t incarnation = 0) {
    const auto at = static_cast<size_t>(worker.value);
    reports[at] = {};
    reports[at].worker = worker;
    reports[at].incarnation = incarnation;
    keep(report(at));
    reports[at].epoch = state.epoch;
    reports[at].address = "127.0.0.1:9000";
    reports[at].connected = true;
    keep(report(at));
    acknowledge();
    while (state.committed + 1 < state.planning.from) take_but(at);
    reports[at].version = state.planning.from;
    reports[at].phase = Phase::Running;
    keep(report(at));
    reports[at].received = reports[at].version;
    keep(report(at));
    for (int step = 0; step < 4; ++step) take_but(reports.size());
    acknowledge();
    EXPECT_EQ(state.members[at].joining, Joining::No);
  }
  void acknowledge() {
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive) continue;
      reports[i].plan = state.planning.serial;
      keep(report(i));
    }
  }
  // All live workers take a step, except `but` and those that wait for the commit of the step
  // before.
  void take_but(size_t but) {
    for (size_t i = 0; i < reports.size(); ++i) {
      const bool waits = reports[i].version > state.committed;
      if (state.members[i].alive && i != but && !waits) keep(take(i));
    }
  }
};

TEST(Growth, AnAbsentWorkerJoinsAndTheRunIsComplete) {
  Growth run({kDead});
  EXPECT_FALSE(is_reduced(run.state)) << "it is not missed";
  EXPECT_EQ(run.state.told.directive.members, (std::vector<WorkerId>{{0}, {1}, {2}}));
  EXPECT_FALSE(facts_of(run.state).grown);
  run.come(kDead);
  EXPECT_EQ(run.reasons.at(0), "worker 3 (stage 1 of pipeline 1) joins");
  EXPECT_TRUE(facts_of(run.state).grown);
  EXPECT_EQ(run.state.planning.present, run.state.rules.whole);
  EXPECT_TRUE(run.state.planning.monitor->cluster.workers[3].alive);
  EXPECT_EQ(run.state.epoch, 1) << "no epoch begins for it";
  const int64_t before = run.state.committed;
  run.steps(2);
  EXPECT_GE(run.state.committed, before + 1);
}

TEST(Growth, AJoinedWorkerIsMissedWhenItDies) {
  Growth run({kDead});
  run.come(kDead);
  run.steps(2);
  run.die();
  EXPECT_TRUE(is_reduced(run.state));
  run.freeze();
  run.run();
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_FALSE(run.hear(run.reports[3]).instruction) << "the dead speaks on";
}

TEST(Growth, AfterOneJoinsTheOtherAbsentWorkerIsMissed) {
  Growth run({{1}, {2}});
  EXPECT_FALSE(is_reduced(run.state));
  run.come({2});
  EXPECT_TRUE(is_reduced(run.state));
  EXPECT_EQ(run.state.planning.present->stages[0].holders, (std::vector<WorkerId>{{0}, {2}}));
  EXPECT_EQ(run.state.planning.present->stages[1].holders, (std::vector<WorkerId>{{3}}));
  run.steps(3);
  run.come({1});
  EXPECT_FALSE(is_reduced(run.state));
  EXPECT_EQ(run.state.planning.present, run.state.rules.whole);
}

TEST(Growth, TheNextCoordinatorKnowsThatTheRunHasGrown) {
  Growth run({{1}, {2}});
  run.come({2});
  run.steps(3);
  Rules rules = run.state.rules;
  rules.term = 2;
  const auto plan = run.state.planning.present;
  const State next = take_up(rules, facts_of(run.state), {plan, plan}, run.now);
  EXPECT_TRUE(next.grown);
  EXPECT_TRUE(is_reduced(next)) << "worker 1 is missed";
  EXPECT_TRUE(next.members[2].alive);
  // Before any worker has come, no absent worker is missed.
  Growth young({{1}, {2}});
  const State same = take_up(rules, facts_of(young.state),
                             {young.state.rules.plan, young.state.rules.plan}, young.now);
  EXPECT_FALSE(is_reduced(same));
  EXPECT_TRUE(same.members[1].absent);
}

TEST(Growth, AJoinerWithoutAPlaceIsNotInvited) {
  Rules rules = growing_rules({kDead});
  rules.whole = nullptr;
  rules.stages = rules.plan->stages;
  Survival run(rules);
  run.steps(2);
  run.reports[3] = {};
  run.reports[3].worker = kDead;
  EXPECT_FALSE(run.report(3).instruction);
  EXPECT_EQ(run.state.members[3].joining, Joining::No);
}

// The savers of a version are not replaced while they live. Otherwise the old and the new saver
// might both go past the version without saving it, each while the other one was named.
TEST(Join, TheSaversOfAVersionStayWhileStepsRun) {
  Return run;
  const int64_t version = run.state.committed + 1;
  EXPECT_EQ(choose_savers(run.state, version), (std::vector<WorkerId>{{0}, {1}}));
  run.state.told.save_version = version;
  run.state.told.savers = {{2}, {1}};
  EXPECT_EQ(choose_savers(run.state, version), (std::vector<WorkerId>{{2}, {1}}));
  EXPECT_EQ(choose_savers(run.state, version + 1), (std::vector<WorkerId>{{0}, {1}}));
  run.state.told.savers = {{0}, {3}};  // worker 3 is dead
  EXPECT_EQ(choose_savers(run.state, version), (std::vector<WorkerId>{{0}, {1}}));
}

}  // namespace
}  // namespace tenuto
