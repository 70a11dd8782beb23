// How a plan changes while steps run: a change is detected, a plan is requested, told and
// acknowledged, and comes into force.
#include "control/replan.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "control/planning.h"
#include "control/play.h"
#include "ir/effect.h"
#include "plan/lower.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

Plan plan_of_order(const std::string& order) {
  Shape shape;
  shape.stages = shape.layers = 2;
  shape.pipelines = 2;
  shape.micros = 1;
  shape.order = order;
  shape.split_backward = true;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), "a small plan");
  return std::move(plan).value();
}

Rules adapting_rules(Treatment slow_links = Treatment::Adapt) {
  Rules rules = small_rules();
  rules.steps = 1000;
  rules.checkpoint_every = 0;
  rules.treatments.slow_links = slow_links;
  const Plan plan = plan_of_order("1f1b");
  rules.plan = std::make_shared<const Plan>(plan);
  rules.stages = plan.stages;
  rules.model.layers.resize(2);
  rules.cluster = uniform_cluster(4, {kMillisecond, 0});
  return rules;
}

// A measured backward of a stage that recomputes contains the second forward, which stage_cost()
// adds: the op lasts as long as it was measured.
TEST(Replan, MeasuredTimesOfAStageThatRecomputes) {
  const Rules rules = adapting_rules();
  Plan plan = *rules.plan;
  plan.stages[0].recompute = true;
  State state = begin(rules, {});
  MonitorState monitor = *state.planning.monitor;
  for (const StageId stage : {StageId{0}, StageId{1}}) {
    monitor.stages[{stage, OpKind::Forward}].latest = {2 * kMillisecond};
    monitor.stages[{stage, OpKind::BackwardInput}].latest = {5 * kMillisecond};
    monitor.stages[{stage, OpKind::BackwardWeight}].latest = {kMillisecond};
  }
  state.planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
  const PlanRequest request = question_of(state, std::make_shared<const Plan>(plan), false);
  for (const Stage& stage : plan.stages) {
    const StageCost cost = stage_cost(request.model, stage);
    EXPECT_EQ(cost.forward, 2 * kMillisecond);
    EXPECT_EQ(cost.backward_input, 5 * kMillisecond);
    EXPECT_EQ(cost.backward_weight, kMillisecond);
  }
}

// A play in which messages between workers 0 and 1 take `delay` one way, and ops of worker 3 take
// `length`.
class Measured : public Play {
 public:
  explicit Measured(Treatment slow_links = Treatment::Adapt)
      : Measured(adapting_rules(slow_links)) {}
  explicit Measured(const Rules& rules) : Play(rules) { connect(); }

  // All workers take one step; the decisions are kept.
  void all_step() {
    for (size_t i = 0; i < reports.size(); ++i) {
      const auto self = static_cast<int32_t>(i);
      const WorkerId peer{self % 2 == 0 ? self + 1 : self - 1};
      StepSummary summary{.step = reports[i].version};
      summary.losses = {{{self / 2}, 1.0}};
      summary.clipped = clipped;
      summary.sample = {{self}, summary.step, {}, {}};
      const Duration way = i < 2 ? delay : kMillisecond;
      summary.sample.links = {steady_link(peer, {self}, way)};
      for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
        const Duration took = i == 3 ? length : 10 * kMillisecond;
        summary.sample.ops.push_back({{self}, {self % 2}, kind, 8, took});
      }
      if (i == 3) summary.sample.processor = processor;
      reports[i].steps = {summary};
      reports[i].version += 1;
      keep(report(i));
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) all_step();
  }
  void all_know() {
    for (size_t i = 0; i < reports.size(); ++i) {
      reports[i].plan = state.told.plan_serial;
      keep(report(i));
    }
  }
  void keep(const Decision& decision) {
    for (const Verdict& verdict : decision.verdicts) verdicts.push_back(verdict.sentence);
    if (decision.wanted) wanted.push_back(*decision.wanted);
    if (!decision.reason.empty()) reasons.push_back(decision.reason);
  }
  // Takes steps until detection requests a plan, at most 10.
  void until_wanted() {
    for (int i = 0; i < 10 && wanted.empty(); ++i) all_step();
    ASSERT_EQ(wanted.size(), 1u);
  }

  Duration delay = kMillisecond, length = 10 * kMillisecond;
  bool clipped = false;
  std::optional<ProcessorSample> processor;  // of worker 3
  std::vector<std::string> verdicts, reasons;
  std::vector<PlanRequest> wanted;

  // The link slows down; the requested plan is told, and all workers acknowledge it.
  void change_plan() {
    steps(20);
    delay = 40 * kMillisecond;
    until_wanted();
    hear(Planned{wanted[0].request, std::make_shared<const Plan>(plan_of_order("gpipe")), ""});
    all_know();
  }
};

Rules choosing_rules() {
  Rules rules = adapting_rules();
  rules.chooses_update = true;
  return rules;
}

// The answer to the newest request: the same plan with the update ahead of the norm.
Planned ahead_of(const Measured& run, double bearable) {
  const PlanRequest& request = run.wanted.back();
  auto plan = std::make_shared<const Plan>(with_update(*request.plan, true));
  return {request.request, std::move(plan), "faster", bearable};
}

TEST(Replan, StepsGoAheadOfTheNormWhileFewAreClipped) {
  Measured run(choosing_rules());
  run.steps(9);
  EXPECT_TRUE(run.wanted.empty());
  run.steps(1);
  ASSERT_EQ(run.wanted.size(), 1u);
  EXPECT_TRUE(run.wanted[0].update);
  EXPECT_TRUE(run.hear(ahead_of(run, 0.2)).new_plan);
  run.all_know();
  run.steps(8);
  EXPECT_TRUE(plan_of(run.state.planning, run.state.committed)->update.staggered);
  // Rare clipped steps keep the plan; many in a row change it.
  run.clipped = true;
  run.steps(1);
  run.clipped = false;
  run.steps(5);
  EXPECT_EQ(run.state.planning.serial, 2);
  run.clipped = true;
  for (int i = 0; i < 8 && run.state.planning.serial == 2; ++i) run.steps(1);
  EXPECT_EQ(run.state.planning.serial, 3);
  EXPECT_FALSE(run.state.planning.present->update.staggered);
  EXPECT_NE(run.reasons.back().find("of the latest steps were clipped"), std::string::npos)
      << run.reasons.back();
}

TEST(Replan, ManyClippedStepsKeepTheBarrierUntilLongCalm) {
  Measured run(choosing_rules());
  run.clipped = true;
  run.steps(30);
  EXPECT_TRUE(run.wanted.empty());
  run.clipped = false;
  run.steps(10);
  ASSERT_EQ(run.wanted.size(), 1u);
  EXPECT_FALSE(run.hear(ahead_of(run, 0.2)).new_plan);  // half of the last steps were clipped
  run.steps(9);
  EXPECT_EQ(run.wanted.size(), 1u);
  run.steps(1);
  EXPECT_EQ(run.wanted.size(), 2u);
  EXPECT_FALSE(run.hear(ahead_of(run, 0.2)).new_plan);
  run.steps(20);
  ASSERT_EQ(run.wanted.size(), 3u);
  EXPECT_TRUE(run.hear(ahead_of(run, 0.2)).new_plan);
}

TEST(Replan, AHealedLinkLeavesTheUpdateAsItIs) {
  Measured run(choosing_rules());
  run.steps(10);
  run.hear(ahead_of(run, 0.2));
  run.all_know();
  run.steps(10);
  run.wanted.clear();
  run.delay = 40 * kMillisecond;
  run.until_wanted();
  EXPECT_FALSE(run.wanted[0].update);
  EXPECT_TRUE(run.wanted[0].plan->update.staggered);
  const Plan other = with_update(plan_of_order("gpipe"), true);
  run.hear(Planned{run.wanted[0].request, std::make_shared<const Plan>(other), ""});
  run.all_know();
  run.delay = kMillisecond;
  for (int i = 0; i < 40 && run.state.planning.serial == 3; ++i) run.steps(1);
  EXPECT_EQ(run.state.planning.serial, 4);
  EXPECT_EQ(*run.state.planning.present, with_update(*run.state.rules.plan, true));
}

TEST(Replan, ASlowLinkLeadsToANewPlan) {
  Measured run;
  run.steps(20);
  EXPECT_TRUE(run.verdicts.empty());
  run.delay = 40 * kMillisecond;
  run.until_wanted();
  ASSERT_EQ(run.verdicts.size(), 1u);
  EXPECT_NE(run.verdicts[0].find("link 0-1"), std::string::npos) << run.verdicts[0];
  const PlanRequest request = run.wanted[0];
  EXPECT_EQ(request.plan->order, "1f1b");
  EXPECT_EQ(request.model.layers[0].forward, 10 * kMillisecond);
  EXPECT_NEAR(to_milliseconds(request.cluster.link({0}, {1}).latency), 40, 2);
  EXPECT_NEAR(to_milliseconds(request.cluster.link({2}, {3}).latency), 1, 0.1);

  const auto better = std::make_shared<const Plan>(plan_of_order("gpipe"));
  const Decision told = run.hear(Planned{request.request, better, "faster"});
  EXPECT_TRUE(told.new_plan);
  ASSERT_TRUE(told.instruction);
  EXPECT_EQ(told.instruction->plan_serial, 2);
  EXPECT_EQ(told.instruction->plan_from, -1);
  EXPECT_EQ(told.reason, "plan 2 (gpipe) is proposed: faster");

  // Three of four workers know the plan: nothing happens, steps go on.
  for (size_t i = 0; i < 3; ++i) {
    run.reports[i].plan = 2;
    run.keep(run.report(i));
  }
  EXPECT_EQ(run.state.planning.from, -1);
  run.all_know();
  const int64_t committed = run.state.committed;
  EXPECT_EQ(run.state.told.plan_from, committed + 2);
  EXPECT_EQ(run.reasons.back(), cat("plan 2 (gpipe) is in force from step ", committed + 2));
  EXPECT_EQ(plan_of(run.state.planning, committed + 1)->order, "1f1b");
  EXPECT_EQ(plan_of(run.state.planning, committed + 2)->order, "gpipe");
}

// If routing is allowed, a slow worker alone causes a request for a plan, and the first plan
// returns with its speed. If not, the slow worker is only reported.
TEST(Replan, ASlowWorkerChangesThePlanWhereRoutingIsAllowed) {
  for (const bool routing : {false, true}) {
    Rules rules = adapting_rules();
    rules.treatments.slow_workers = routing ? Treatment::Adapt : Treatment::Observe;
    Measured run(rules);
    run.steps(20);
    run.length = 20 * kMillisecond;
    run.steps(10);
    ASSERT_EQ(run.verdicts.size(), 1u);
    EXPECT_NE(run.verdicts[0].find("worker 3"), std::string::npos) << run.verdicts[0];
    EXPECT_EQ(run.wanted.size(), routing ? 1u : 0u);
    if (!routing) continue;
    EXPECT_TRUE(run.wanted[0].terms.routes);
    EXPECT_EQ(run.wanted[0].cluster.workers[3].speed, 0.5);
    EXPECT_EQ(run.wanted[0].cluster.workers[1].speed, 1);
    run.hear(
        Planned{run.wanted[0].request, std::make_shared<const Plan>(plan_of_order("gpipe")), ""});
    run.all_know();
    run.length = 10 * kMillisecond;
    for (int i = 0; i < 60 && run.state.planning.serial == 2; ++i) run.all_step();
    EXPECT_EQ(run.reasons.back(),
              "plan 3 (1f1b) is proposed: all workers and links are healthy again");
  }
}

// The sentence names the cause and the host, as the worker's address has it.
TEST(Replan, ASlowWorkersSentenceNamesItsCauseAndHost) {
  Measured run;
  run.processor = ProcessorSample{
      .step = 250 * kMillisecond, .cpu = 240 * kMillisecond, .pressure_is = Figure::Known};
  run.steps(20);
  EXPECT_EQ(
      run.verdicts,
      (std::vector<std::string>{
          "worker 3: the kernel of its host 127.0.0.1 does not tell how long threads wait for "
          "a processor (/proc/self/task/*/schedstat is not there: the kernel was built "
          "without CONFIG_SCHED_INFO); there, pressure alone tells whether others take a slow "
          "worker's processors"}));
  run.length = 20 * kMillisecond;
  run.processor->step = 500 * kMillisecond;
  run.processor->pressure = 0.75;
  run.steps(10);
  ASSERT_EQ(run.verdicts.size(), 2u);
  EXPECT_EQ(run.verdicts[1],
            "worker 3 is slow since step 20: its ops last 2 times as long as they should, planned "
            "with speed 0.5, sure 0.99; other processes take the processors of its host 127.0.0.1: "
            "pressure on them is 75 %");
}

// The same if the all-reduce follows the cluster ("auto", "late-one"): no work may move to another
// worker, but the others may sum up while they wait for the slow one.
TEST(Replan, ASlowWorkerChangesThePlanWhereSumsMayChange) {
  for (const char* name : {"auto", "late-one", "halving"}) {
    SCOPED_TRACE(name);
    Rules rules = adapting_rules();
    rules.plan = std::make_shared<const Plan>(with_all_reduce(*rules.plan, name));
    Measured run(rules);
    run.steps(20);
    run.length = 20 * kMillisecond;
    run.steps(10);
    const bool follows = name != std::string("halving");
    ASSERT_EQ(run.wanted.size(), follows ? 1u : 0u);
    if (!follows) continue;
    EXPECT_FALSE(run.wanted[0].terms.routes);
    EXPECT_EQ(run.wanted[0].cluster.workers[3].speed, 0.5);
    run.hear(Planned{
        run.wanted[0].request,
        std::make_shared<const Plan>(with_summing(*rules.plan, {{1}}, {"late-one", {3}, 5})),
        "sums of stage 1 wait for worker 3"});
    run.all_know();
    run.length = 10 * kMillisecond;
    for (int i = 0; i < 60 && run.state.planning.serial == 2; ++i) run.all_step();
    EXPECT_EQ(run.reasons.back(),
              "plan 3 (1f1b) is proposed: all workers and links are healthy again");
    EXPECT_EQ(*run.state.planning.present, *rules.plan);
  }
}

// When the change of plan is told, the commit that the step of the change waits for is still to
// come. So every worker that hears that commit has heard of the change.
TEST(Replan, EveryWorkerHearsOfAChangeBeforeItsStep) {
  Measured run;
  run.change_plan();
  const int64_t from = run.state.told.plan_from;
  for (const Report& report : run.reports) EXPECT_LT(report.version, from);
  // Step `from` begins only after commit `from` - 1.
  EXPECT_LT(run.state.committed, from - 1);
}

TEST(Replan, AHealedLinkBringsBackTheFirstPlan) {
  Measured run;
  run.change_plan();
  run.delay = kMillisecond;
  for (int i = 0; i < 60 && run.state.planning.serial == 2; ++i) run.all_step();
  EXPECT_EQ(run.state.planning.serial, 3);
  EXPECT_EQ(run.state.planning.present->order, "1f1b");
  EXPECT_EQ(run.reasons.back(), "plan 3 (1f1b) is proposed: all links are healthy again");
  run.all_know();
  EXPECT_EQ(run.state.told.plan_from, run.state.committed + 2);
}

TEST(Replan, WithoutABetterPlanNothingChanges) {
  Measured run;
  run.steps(20);
  run.delay = 40 * kMillisecond;
  run.until_wanted();
  const Decision told = run.hear(Planned{run.wanted[0].request, nullptr, "the plan stays"});
  EXPECT_EQ(told.reason, "the plan stays");
  EXPECT_EQ(run.state.planning.serial, 1);
  run.steps(30);
  EXPECT_EQ(run.wanted.size(), 1u);  // asked once for one change
}

TEST(Replan, ObserveReportsAndOffReportsNothing) {
  for (const Treatment mode : {Treatment::Observe, Treatment::Off}) {
    Measured run(mode);
    run.steps(20);
    run.delay = 40 * kMillisecond;
    run.steps(10);
    EXPECT_TRUE(run.wanted.empty());
    EXPECT_EQ(run.verdicts.size(), mode == Treatment::Observe ? 1u : 0u);
  }
}

// A slow worker that was only reported is acted on once a user asks for that.
TEST(Replan, SlowWorkersAreTreatedAsAUserAsks) {
  Measured run;
  run.steps(20);
  run.length = 20 * kMillisecond;
  run.steps(10);
  ASSERT_EQ(run.verdicts.size(), 1u);
  EXPECT_TRUE(run.wanted.empty());
  run.keep(run.hear(request_for(TreatmentKey::SlowWorkers, Treatment::Adapt)));
  EXPECT_EQ(run.reasons.back(), "requested: resilience.slow_workers is \"adapt\" from now on");
  run.steps(1);
  ASSERT_EQ(run.wanted.size(), 1u);
  EXPECT_TRUE(run.wanted[0].terms.routes);
  EXPECT_EQ(run.wanted[0].cluster.workers[3].speed, 0.5);
  run.hear(Planned{run.wanted[0].request, nullptr, "the plan stays"});

  // From now on changes of its speed are only reported again.
  run.hear(request_for(TreatmentKey::SlowWorkers, Treatment::Observe));
  run.length = 10 * kMillisecond;
  run.steps(60);
  EXPECT_EQ(run.verdicts.size(), 2u);
  EXPECT_EQ(run.wanted.size(), 1u);
  EXPECT_EQ(run.state.planning.serial, 1);
}

TEST(Replan, MovesOfLayersAreTreatedAsAUserAsks) {
  Measured run;
  run.steps(20);
  run.length = 20 * kMillisecond;
  run.steps(10);
  for (const Treatment how : {Treatment::Observe, Treatment::Off}) {
    run.keep(run.hear(request_for(TreatmentKey::Layers, how)));
    EXPECT_EQ(run.reasons.back(), cat("requested: resilience.layers is \"",
                                      name_of(TreatmentKey::Layers, how), "\" from now on"));
    run.steps(1);
    // With "off" nothing more is asked, and an answer that comes then moves nothing.
    ASSERT_EQ(run.wanted.size(), 1u);
    EXPECT_TRUE(run.wanted[0].terms.layers);
  }
  const auto plan = std::make_shared<const Plan>(plan_of_order("gpipe"));
  const Decision told =
      run.hear(Planned{run.wanted[0].request, plan, "a move gains", 0, {{{1}, {3}, {2}}}});
  EXPECT_EQ(told.reason, "resilience.layers is \"off\", so nothing moves; a move gains");
  EXPECT_FALSE(told.new_plan);
}

// While a run only observes, it plans and tells what would change; then it acts, then it looks no
// more.
TEST(Replan, AllTroublesAreTreatedAsAUserAsks) {
  Measured run;
  run.steps(20);
  run.keep(run.hear(request_for(TreatmentKey::Mode, Treatment::Observe)));
  run.delay = 40 * kMillisecond;
  run.until_wanted();
  const auto plan = std::make_shared<const Plan>(plan_of_order("gpipe"));
  const Decision told =
      run.hear(Planned{run.wanted.back().request, plan, "it is faster", 0, {{{1}, {3}, {2}}}});
  EXPECT_EQ(told.reason, "resilience.mode is \"observe\", so nothing changes; it is faster");
  EXPECT_FALSE(told.new_plan);
  const size_t asked = run.wanted.size();
  run.keep(run.hear(request_for(TreatmentKey::Mode, Treatment::Adapt)));
  run.steps(1);
  ASSERT_EQ(run.wanted.size(), asked + 1);
  EXPECT_TRUE(run.hear(Planned{run.wanted.back().request, plan, "it is faster"}).new_plan);
  run.keep(run.hear(request_for(TreatmentKey::Mode, Treatment::Off)));
  const size_t found = run.verdicts.size();
  run.delay = {};
  run.steps(60);
  EXPECT_EQ(run.verdicts.size(), found);
}

// No plan is asked for while slow links are only observed; once they are adapted to, it is.
TEST(Replan, SlowWorkersWaitForSlowLinks) {
  Measured run(Treatment::Observe);
  run.steps(20);
  run.length = 20 * kMillisecond;
  run.steps(10);
  run.keep(run.hear(request_for(TreatmentKey::SlowWorkers, Treatment::Adapt)));
  run.steps(1);
  EXPECT_TRUE(run.wanted.empty());
  run.keep(run.hear(request_for(TreatmentKey::SlowLinks, Treatment::Adapt)));
  run.steps(1);
  ASSERT_EQ(run.wanted.size(), 1u);
  EXPECT_TRUE(run.wanted[0].terms.routes);
}

TEST(Replan, AnAnswerToAnotherRequestIsIgnored) {
  Measured run;
  run.steps(20);
  const auto plan = std::make_shared<const Plan>(plan_of_order("gpipe"));
  EXPECT_FALSE(run.hear(Planned{1, plan, ""}).new_plan);
  run.delay = 40 * kMillisecond;
  run.until_wanted();
  EXPECT_FALSE(run.hear(Planned{run.wanted[0].request + 1, plan, ""}).new_plan);
  // After the run has stopped training, an answer changes nothing.
  run.hear(Exited{.worker = {1}, .signalled = true, .number = 9});
  EXPECT_FALSE(run.hear(Planned{run.wanted[0].request, plan, ""}).new_plan);
}

// The link changes again while a plan is computed: the plan is stale, and another one is requested.
TEST(Replan, AStalePlanIsRequestedAgain) {
  Measured run;
  run.steps(20);
  run.delay = 20 * kMillisecond;
  run.until_wanted();
  run.delay = 60 * kMillisecond;
  run.steps(10);
  EXPECT_EQ(run.wanted.size(), 1u);  // one at a time
  const auto plan = std::make_shared<const Plan>(plan_of_order("gpipe"));
  const Decision told = run.hear(Planned{run.wanted[0].request, plan, ""});
  EXPECT_FALSE(told.new_plan);
  run.keep(told);
  run.steps(1);
  ASSERT_EQ(run.wanted.size(), 2u);
  EXPECT_NEAR(to_milliseconds(run.wanted[1].cluster.link({0}, {1}).latency), 60, 3);
}

Decision want_link(Play& run, int32_t link, double latency_ms) {
  Request request{Request::Kind::Fault, 0};
  request.fault.link = link;
  request.fault.latency_ms = latency_ms;
  return run.hear(request);
}

TEST(Replan, AnInjectedSlowLinkStartsAtAFutureStep) {
  Measured run(Treatment::Off);
  run.steps(5);
  const Decision told = want_link(run, 0, 30);
  EXPECT_EQ(told.reason, "requested: 30 ms more each way on link 0 from step 7");
  ASSERT_TRUE(told.instruction);
  ASSERT_EQ(told.instruction->faults.size(), 1u);
  EXPECT_EQ(told.instruction->faults[0].at_step, 7);
  EXPECT_EQ(told.instruction->faults[0].until_step, -1);
  for (const Report& report : run.reports) EXPECT_LT(report.version, 7);
  run.steps(10);  // the fault is told again with every commit
  EXPECT_EQ(run.state.told.faults, told.instruction->faults);

  // Another delay replaces it, a delay of 0 ends it, and a fault that is over is forgotten.
  want_link(run, 0, 50);
  ASSERT_EQ(run.state.told.faults.size(), 2u);
  EXPECT_EQ(run.state.told.faults[0].until_step, 17);
  EXPECT_EQ(run.state.told.faults[1].at_step, 17);
  run.steps(5);
  EXPECT_EQ(want_link(run, 0, 0).reason, "requested: no injected fault on link 0 from step 22");
  ASSERT_EQ(run.state.told.faults.size(), 1u);
  EXPECT_EQ(run.state.told.faults[0].latency_ms, 50);
  EXPECT_EQ(run.state.told.faults[0].until_step, 22);
  run.steps(5);
  want_link(run, 0, 0);
  EXPECT_TRUE(run.state.told.faults.empty());
}

// A request for traces extends one that is under way, so that no worker leaves out a step of it.
TEST(Replan, TracesAreAskedForFromAFutureStep) {
  Measured run(Treatment::Off);
  run.steps(5);
  const Decision told = run.hear(Request{Request::Kind::Trace, 3});
  EXPECT_EQ(told.reason, "asked for traces: up to step 9");
  ASSERT_TRUE(told.instruction);
  EXPECT_EQ(told.instruction->trace_from, 7);
  EXPECT_EQ(told.instruction->trace_until, 10);
  for (const Report& report : run.reports) EXPECT_LT(report.version, 7);
  run.steps(2);
  run.hear(Request{Request::Kind::Trace, 3});
  EXPECT_EQ(run.state.told.trace_from, 7);
  EXPECT_EQ(run.state.told.trace_until, 12);
  run.steps(20);
  run.hear(Request{Request::Kind::Trace, 1});
  EXPECT_EQ(run.state.told.trace_until, run.state.told.trace_from + 1);
  EXPECT_GT(run.state.told.trace_from, 20);
}

TEST(Replan, StepsAreTracedAfterADetection) {
  for (const int64_t steps : {0, 4}) {
    Measured run(Treatment::Observe);
    run.state.rules.trace_after = steps;
    run.steps(20);
    EXPECT_EQ(run.state.told.trace_until, 0);
    run.delay = 40 * kMillisecond;
    run.steps(10);
    ASSERT_EQ(run.verdicts.size(), 1u);
    EXPECT_EQ(run.state.told.trace_until, steps == 0 ? 0 : run.state.told.trace_from + steps);
    EXPECT_EQ(run.state.told.trace_from > 20, steps > 0);
  }
}

TEST(Replan, AnInjectedPartitionHappensOnceBesideOtherFaults) {
  Measured run(Treatment::Off);
  run.steps(5);
  want_link(run, 0, 30);
  Request request{Request::Kind::Fault, 0};
  request.fault.kind = "partition";
  request.fault.worker = "1";
  request.fault.for_ms = 80;
  EXPECT_EQ(run.hear(request).reason, "requested: worker 1 is cut off for 80 ms in step 7");
  ASSERT_EQ(run.state.told.faults.size(), 2u);
  EXPECT_EQ(run.state.told.faults[1].at_step, 7);
  run.steps(5);
  request.fault.kind = "clock-skew";
  request.fault.skew_ms = -4;
  EXPECT_EQ(run.hear(request).reason,
            "requested: the clock of worker 1 is 4 ms behind from step 12");
  ASSERT_EQ(run.state.told.faults.size(), 2u);  // the partition is over
  EXPECT_EQ(run.state.told.faults[1].kind, "clock-skew");
  request.fault.skew_ms = 0;
  run.steps(3);
  EXPECT_EQ(run.hear(request).reason,
            "requested: no injected fault on the clock of worker 1 from step 15");
}

TEST(Replan, TheLaterOfTwoInjectionsForAStepCounts) {
  Measured run(Treatment::Off);
  run.steps(5);
  want_link(run, 0, 30);
  want_link(run, 0, 40);
  ASSERT_EQ(run.state.told.faults.size(), 1u);
  EXPECT_EQ(run.state.told.faults[0].latency_ms, 40);
  want_link(run, 0, 0);
  EXPECT_TRUE(run.state.told.faults.empty());
}

}  // namespace
}  // namespace tenuto
