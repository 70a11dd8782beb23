// Optimizer steps that are taken before the global norm is known: whatever is clipped or skipped
// afterwards, the numbers are those of one plain loop that waits for the norm, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/random.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/lower.h"
#include "plan/routed.h"
#include "plan/routings.h"
#include "runtime/ahead.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

// Counts of what happened to the steps.
struct Tally {
  int committed = 0;             // early steps that stood, one per stage
  int rolled_back = 0;           // early steps that were undone, one per stage
  int clipped = 0, skipped = 0;  // steps
};

// A clip limit that this share of the steps exceeds, and gradients that are sometimes not finite.
PacedOptions troubled(const Job& job, int64_t steps, double share) {
  PlainLoop plain(job);
  std::vector<double> norms;
  for (int64_t step = 0; step < steps; ++step) norms.push_back(plain.step().gradient_norm);
  std::sort(norms.begin(), norms.end());
  PacedOptions options;
  options.clip = norms[static_cast<size_t>((1 - share) * static_cast<double>(steps - 1))];
  options.bad = [](int64_t step, StageId stage) {
    return mix(5, static_cast<uint64_t>(step), static_cast<uint64_t>(stage.value)) % 100 == 0;
  };
  return options;
}

// Runs a staggered plan and compares it with the plain loop.
Tally expect_plain_numbers(const Job& job, const Plan& plan, int64_t steps, double share,
                           bool makes_final = false) {
  Tally tally;
  EXPECT_TRUE(plan.update.staggered);
  const Status right = check(plan);
  EXPECT_TRUE(right.ok()) << right.error().message;
  const PacedOptions options = troubled(job, steps, share);
  TestCluster cluster(job, plan, monotonic_clock(), options);
  cluster.connect();
  if (makes_final) {
    cluster.makes_final = [](int32_t worker, int64_t step) {
      return mix(8, static_cast<uint64_t>(worker), static_cast<uint64_t>(step)) % 4 == 0;
    };
  }
  PlainLoop plain(job, options);
  std::vector<StepOutcome> outcomes;
  const auto stages = static_cast<int>(plan.stages.size());
  for (int64_t step = 0; step < steps; ++step) {
    outcomes.push_back(plain.step());
    const bool clips = outcomes.back().gradient_norm + 1e-6 > options.clip;
    const bool right_away = outcomes.back().finite && !clips;
    (right_away ? tally.committed : tally.rolled_back) += plain.taken_ahead();
    EXPECT_TRUE(!right_away || plain.taken_ahead() == stages);
    tally.skipped += outcomes.back().finite ? 0 : 1;
    tally.clipped += outcomes.back().finite && clips ? 1 : 0;
  }
  expect_equal_runs(cluster, cluster.run(0, steps), outcomes, plain);
  return tally;
}

void print(const char* what, const Tally& tally) {
  std::printf("%s: %d stages committed early, %d rolled back; %d steps clipped, %d skipped\n", what,
              tally.committed, tally.rolled_back, tally.clipped, tally.skipped);
}

Job staggered_job(int32_t stages, int32_t pipelines, int32_t micros, bool split) {
  Job job = instant_job(stages, pipelines, micros);
  job.parallel.optimizer = "staggered";
  job.parallel.split_backward = split;
  return job;
}

TEST(Staggered, FourHundredStepsEqualSynchronousClipping) {
  for (const bool split : {false, true}) {
    for (const int32_t pipelines : {1, 2}) {
      SCOPED_TRACE(testing::Message() << pipelines << " pipelines, split " << split);
      const Job job = staggered_job(4, pipelines, 3, split);
      const Tally tally = expect_plain_numbers(job, plan_of(job), 400, 0.2);
      print(pipelines == 1 ? "one pipeline" : "two pipelines", tally);
      EXPECT_GT(tally.committed, 1000);
      EXPECT_GT(tally.rolled_back, 10);
      EXPECT_GT(tally.clipped, 3);
      EXPECT_GT(tally.skipped, 5);
    }
  }
}

// Any worker may validate a version before the step begins, while the others do it within the step.
TEST(Staggered, AnyWorkerMayValidateAhead) {
  for (const int32_t pipelines : {1, 2}) {
    const Job job = staggered_job(3, pipelines, 3, true);
    const Tally tally = expect_plain_numbers(job, plan_of(job), 120, 0.2, true);
    print("validated ahead at random", tally);
    EXPECT_GT(tally.rolled_back, 5);
  }
}

// The plan may change to one with a barrier and back, also at a clipped step.
TEST(Staggered, ThePlanMayGoToTheBarrierAndBack) {
  const Job job = staggered_job(3, 2, 3, true);
  const Plan ahead = plan_of(job), waiting = with_update(ahead, false);
  const PacedOptions options = troubled(job, 200, 0.3);
  TestCluster cluster(job, ahead, monotonic_clock(), options);
  cluster.connect();
  cluster.plan_at = [&](int64_t step) -> const Plan& {
    return step / 3 % 2 == 0 ? ahead : waiting;
  };
  PlainLoop plain(job, options);
  std::vector<StepOutcome> outcomes;
  for (int64_t step = 0; step < 200; ++step) outcomes.push_back(plain.step());
  expect_equal_runs(cluster, cluster.run(0, 200), outcomes, plain);
}

// Includes workers with several stages, which get one clip decision for all of them.
TEST(Staggered, EveryOrder) {
  for (const OrderCard& card : order_cards()) {
    for (const char* dispatch : {"listed", "ready"}) {
      SCOPED_TRACE(testing::Message() << card.name << " " << dispatch);
      Job job = staggered_job(2, 2, 4, card.splits_backward);
      job.parallel.order = card.name;
      job.parallel.dispatch = dispatch;
      expect_plain_numbers(job, plan_of(job), 40, 0.2);
    }
  }
}

// Random routings, with dead workers and with slow ones.
TEST(Staggered, RoutedPlans) {
  Random random(21);
  Tally all;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    Job job = staggered_job(2 + static_cast<int32_t>(random.below(3)), 3, 2, round % 2 == 0);
    job.seed = round;
    if (round < 4) {  // ops take real time, one worker at half speed
      job.device.forward_ms = job.device.backward_input_ms = {0.05};
      Fault slow;
      slow.kind = "slow-worker";
      slow.worker = "0.1";
      slow.speed = 0.5;
      job.faults = {slow};
    }
    const Plan fresh = plan_of(job);
    const std::vector<bool> alive = draw_alive(fresh, 0.7, random);
    Plan routed = with_work(fresh, draw_work(fresh, alive, random));
    routed.limits.clear();
    const Tally tally = expect_plain_numbers(job, routed, 40, 0.2);
    all.committed += tally.committed;
    all.rolled_back += tally.rolled_back;
    all.clipped += tally.clipped;
    all.skipped += tally.skipped;
  }
  print("routed", all);
  EXPECT_GT(all.rolled_back, 50);
}

// The last stage's step is clipped, so its next step is void: its ops are not computed. The step is
// run again, and counts, once the void run has come to its StepAhead. A held-out pass in between
// belongs to no step and always counts.
TEST(Staggered, AVoidStepIsRunAgain) {
  AheadUpdate ahead(1.0);
  ahead.begin();
  EXPECT_EQ(ahead.judge(ahead.clip_decision(), 0),
            AheadUpdate::Ruling::Stands);  // nothing to judge
  RunningNorm norm;
  norm.squares.add(4);
  EXPECT_FALSE(ahead.decide(norm));
  EXPECT_EQ(ahead.finality().version, 0);
  ahead.begin();  // the step before was not taken, so this one is void: no op need be computed
  EXPECT_FALSE(ahead.counts(OpKind::Forward));
  EXPECT_TRUE(ahead.counts(OpKind::Validate));
  EXPECT_EQ(ahead.clip_decision().norm, 2);
  EXPECT_EQ(ahead.judge(ahead.clip_decision(), 1), AheadUpdate::Ruling::Redo);
  ahead.close();
  EXPECT_EQ(ahead.finality().version, 1);
  for (int k = 0; k < 2; ++k) {  // the void run may begin twice before its StepAhead
    EXPECT_TRUE(ahead.finality().again);
    ahead.begin();
    EXPECT_FALSE(ahead.counts(OpKind::Forward));
    EXPECT_TRUE(ahead.counts(OpKind::Evaluate));
  }
  ahead.pass();
  EXPECT_TRUE(ahead.finality().again);
  ahead.begin();
  EXPECT_FALSE(ahead.finality().again);
  EXPECT_TRUE(ahead.counts(OpKind::Forward));
}

// undo() takes back the newest version, whether it is final or not yet validated.
TEST(Staggered, AVersionCanBeUndone) {
  const Job job = staggered_job(3, 1, 2, false);
  const Plan plan = plan_of(job);
  PacedOptions options;
  options.clip = 1;  // every step is clipped: no stage after the first takes one early
  for (const bool validated : {false, true}) {
    TestCluster cluster(job, plan, monotonic_clock(), options);
    cluster.makes_final_in_the_end = validated;
    cluster.connect();
    ASSERT_TRUE(cluster.run(0, 2)[0].status.ok());
    std::vector<std::vector<float>> before;
    PlainLoop plain(job, options);
    plain.step();
    for (int32_t w = 0; w < 3; ++w) {
      PacedDevice& device = cluster.device(w);
      EXPECT_EQ(device.finality().version, validated ? 2 : 1);
      ASSERT_TRUE(device.undo().ok());
      EXPECT_EQ(device.version(), 1);
      EXPECT_EQ(device.finality().version, 1);
      EXPECT_EQ(device.weights(), plain.weights(w));
      EXPECT_FALSE(device.undo().ok());
    }
    cluster.makes_final_in_the_end = true;
    cluster.connect();
    std::vector<StepOutcome> outcomes{plain.step(), plain.step()};
    expect_equal_runs(cluster, cluster.run(1, 2), outcomes, plain);
  }
}

}  // namespace
}  // namespace tenuto
