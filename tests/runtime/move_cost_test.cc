// What a layer that moves costs beside the bytes of its state, on the virtual clock: a whole
// cluster trains while the layer moves, and the time of its steps is compared with that of a run
// without the move.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "ir/check.h"
#include "ir/layer_move.h"
#include "plan/fine_stages.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "plan/routed.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

// Steps in which the receiver takes part in the updates but does not run the layer yet. In real
// runs, the two changes of plan take at least so many, and no more if the state is one part.
constexpr int64_t kReceiving = 4;
constexpr int64_t kSteps = 4;  // so many before these, and so many after
constexpr WorkerId kSlow{1};

// Three stages of four layers in each of two pipelines.
Job job_of(const char* order, const char* update, double latency_ms) {
  Job job = instant_job(3, 2, 6);
  job.device.clock = "virtual";
  job.device.forward_ms = job.device.backward_input_ms = job.device.backward_weight_ms = {4.0};
  job.device.parameter_bytes = 4096;
  job.network.latency_ms = latency_ms;
  job.parallel.order = order;
  Fault slow;
  slow.kind = "slow-worker";
  slow.worker = "0.1";
  slow.speed = 0.5;
  job.faults = {slow};
  job.parallel.optimizer = update;
  job.parallel.split_backward = find_card(order)->splits_backward;
  return job;
}

Plan fine_plan_of(const Job& job) {
  Shape shape;
  shape.stages = job.parallel.stages;
  shape.pipelines = job.parallel.pipelines;
  shape.layers = 4 * shape.stages;
  shape.micros = job.parallel.micros;
  shape.order = job.parallel.order;
  shape.dispatch = Dispatch::Listed;
  shape.split_backward = job.parallel.split_backward;
  shape.staggered = job.parallel.optimizer == "staggered";
  return with_fine_stages(make_plan(shape).value()).value();
}

// The plans of a move, one after the other, and how many steps each is in force.
using Phases = std::vector<std::pair<Plan, int64_t>>;

// Runs the steps of all plans; returns when the last op of each step ended.
std::vector<Duration> run(const Job& job, const Phases& phases) {
  const HandClock clock;
  TestCluster cluster(job, phases.front().first, clock);
  cluster.connect();
  std::vector<Duration> ends;
  int64_t first = 0;
  for (const auto& [plan, steps] : phases) {
    cluster.plan_at = [&plan = plan](int64_t) -> const Plan& { return plan; };
    for (int32_t w = 0; first > 0 && w < cluster.size(); ++w) {
      EXPECT_TRUE(cluster.compute(w).hold(plan, stages_of(plan.stages, {w})).ok());
    }
    const std::vector<ThreadRun> runs = cluster.run(first, steps);
    ends.resize(static_cast<size_t>(first + steps));
    for (const ThreadRun& worker : runs) {
      EXPECT_TRUE(worker.status.ok()) << worker.status.error().message;
      for (size_t i = 0; i < worker.events.size(); ++i) {
        for (const Event& event : worker.events[i]) {
          Duration& end = ends[static_cast<size_t>(first) + i];
          end = std::max(end, event.finish);
        }
      }
    }
    first += steps;
  }
  return ends;
}

// A step of the run without the move, in nanoseconds.
double step_of(const Job& job) {
  const std::vector<Duration> ends = run(job, {{fine_plan_of(job), kSteps}});
  return static_cast<double>((ends[kSteps - 1] - ends[kSteps - 2]).count());
}

// What the move adds to the time of the whole run, as a share of a step before the move.
double cost_of(const Job& job, const LayerMove& move) {
  const Plan before = fine_plan_of(job);
  std::vector<std::vector<WorkerId>> receivers(before.stages.size()), holders;
  receivers[static_cast<size_t>(move.stage.value)] = {move.to};
  std::vector<Stage> stages = before.stages;
  move_layers(stages, {move});
  for (const Stage& stage : stages) holders.push_back(stage.holders);
  Plan during = with_joiners(with_update(before, false), receivers);
  Plan after = with_holders(before, holders);
  during.dispatch = after.dispatch = Dispatch::Listed;  // so that no op is chosen by the real clock
  EXPECT_TRUE(check(during).ok());
  EXPECT_TRUE(check(after).ok());
  const auto moving = run(job, {{before, kSteps}, {during, kReceiving}, {after, kSteps}});
  const auto still = run(job, {{before, kSteps + kReceiving}});
  const size_t after_end = moving.size() - 1;
  const Duration after_step = moving[after_end] - moving[after_end - 1];
  const Duration without = still.back() + kSteps * after_step;
  const Duration step = still[kSteps] - still[kSteps - 1];
  const double share =
      static_cast<double>((moving.back() - without).count()) / static_cast<double>(step.count());
  std::printf(
      "    %s %s, latency %.1f ms, layer %d to worker %d: a step of %.1f ms, cost %.2f %%\n",
      job.parallel.order.c_str(), job.parallel.optimizer.c_str(), job.network.latency_ms,
      move.stage.value, move.to.value, to_milliseconds(step), 100 * share);
  return share;
}

// Latencies of up to half an op of a layer.
TEST(MoveCost, IsAtMostATwentiethOfAStep) {
  for (const char* order : {"1f1b", "zb-h1"}) {
    for (const double latency : {0.0, 0.1, 0.5}) {
      const Job job = job_of(order, "barrier", latency);
      EXPECT_LE(cost_of(job, {{4}, kSlow, {0}}), 0.05);
      EXPECT_LE(cost_of(job, {{7}, kSlow, {2}}), 0.05);
    }
  }
}

// While layers move, steps wait for the norm. So a run whose other steps do not wait also pays for
// the waiting in these steps.
TEST(MoveCost, OfStepsAheadOfTheNormIsThatOfWaiting) {
  for (const char* order : {"1f1b", "zb-h1"}) {
    const Job job = job_of(order, "staggered", 0.5);
    const double waits = kReceiving * (step_of(job_of(order, "barrier", 0.5)) / step_of(job) - 1);
    EXPECT_LE(cost_of(job, {{4}, kSlow, {0}}), waits + 0.05);
    EXPECT_LE(cost_of(job, {{7}, kSlow, {2}}), waits + 0.05);
  }
}

}  // namespace
}  // namespace tenuto
