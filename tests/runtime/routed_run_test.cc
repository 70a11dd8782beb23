// Routed plans on whole clusters in one process: with any absent workers, any routing and any
// speeds the numbers are those of one plain loop, bit for bit (the sums of a paced device are
// exact).
#include <gtest/gtest.h>

#include <thread>

#include "adapt/adapt.h"
#include "adapt/random_step.h"
#include "ir/check.h"
#include "plan/routings.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

void expect_plain_numbers(const Job& job, const Plan& plan, int64_t steps) {
  const Status right = check(plan);
  ASSERT_TRUE(right.ok()) << right.error().message;
  TestCluster cluster(job, plan);
  cluster.connect();
  PlainLoop plain(job);
  std::vector<StepOutcome> outcomes;
  for (int64_t step = 0; step < steps; ++step) outcomes.push_back(plain.step());
  expect_equal_runs(cluster, cluster.run(0, steps), outcomes, plain);
}

// 200 random shapes with random routings, absent workers and sometimes memory limits.
TEST(RoutedRun, RandomMixturesGiveThePlainLoopsNumbers) {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const auto pick = [&](int64_t most) { return static_cast<int32_t>(1 + random.below(most)); };
    Job job = instant_job(pick(4), pick(3), pick(3));
    job.parallel.split_backward = random.below(2) == 0;
    job.seed = round;
    const Plan fresh = plan_of(job);
    const std::vector<bool> alive = draw_alive(fresh, 0.7, random);
    Plan routed = with_work(fresh, draw_work(fresh, alive, random));
    if (random.below(2) == 0) {
      routed.limits.assign(alive.size(), {0, 0, {1 + random.below(3), 1, random.below(2)}});
    }
    expect_plain_numbers(job, routed, 2);
  }
}

// The plans of adapt() for 200 random mixtures: dead and slow workers, slow links, memory for one
// micro-batch up to all, ready and listed dispatch.
TEST(RoutedRun, AdaptedMixturesGiveThePlainLoopsNumbers) {
  Random random(17);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const auto pick = [&](int64_t most) { return static_cast<int32_t>(1 + random.below(most)); };
    Job job = instant_job(1 + pick(3), 1 + pick(2), pick(3));
    job.parallel.split_backward = random.below(2) == 0;
    job.seed = round;
    Step it = step_of({job.parallel.stages, job.parallel.pipelines, job.parallel.micros},
                      random.below(3) == 0 ? 0 : pick(2 * job.parallel.stages));
    it.plan.split_backward = job.parallel.split_backward;
    it.options.staggered = random.below(2) == 0;
    disturb(random, it);
    AdaptOptions options;
    options.price = it.options;
    options.least_gain = 0;
    options.route_effort = kFirstRoute;
    if (random.below(2) == 0) options.dispatch = Dispatch::Listed;
    const auto adapted = adapt(it.plan, it.model, it.cluster, options);
    ASSERT_TRUE(adapted.ok()) << adapted.error().message;
    expect_plain_numbers(job, adapted.value().plan, 2);
  }
}

// Several stages a worker, under every order that the job may name.
TEST(RoutedRun, EveryOrderWithoutTwoWorkers) {
  for (const OrderCard& card : order_cards()) {
    SCOPED_TRACE(card.name);
    Job job = instant_job(3, 2, 6);
    job.parallel.order = card.name;
    job.parallel.split_backward = card.splits_backward;
    std::vector<bool> alive(6, true);
    alive[1] = alive[5] = false;
    const auto routed = without_workers(plan_of(job), alive);
    ASSERT_TRUE(routed.ok()) << routed.error().message;
    expect_plain_numbers(job, routed.value(), 3);
  }
}

// Ops take real time at workers of unequal speed, so that messages and choices come in other
// orders.
TEST(RoutedRun, TimingChangesNothing) {
  Random random(3);
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    Job job = instant_job(3, 2, 4);
    job.device.forward_ms = job.device.backward_input_ms = {0.4, 0.1, 0.7};
    for (const char* worker : {"0.1", "5"}) {
      Fault fault;
      fault.kind = "slow-worker";
      fault.worker = worker;
      fault.speed = 0.3 + 0.5 * random.uniform();
      job.faults.push_back(fault);
    }
    const Plan fresh = plan_of(job);
    std::vector<bool> alive(6, true);
    alive[static_cast<size_t>(random.below(5))] = false;
    expect_plain_numbers(job, with_work(fresh, draw_work(fresh, alive, random)), 2);
  }
}

// A held-out pass, too, is routed to the living holders.
TEST(RoutedRun, EvaluationSeesTheNewWeights) {
  Job job = instant_job(3, 2, 2);
  job.validate_micros = 5;
  std::vector<bool> alive(6, true);
  alive[4] = false;
  const auto routed = without_workers(plan_of(job), alive);
  ASSERT_TRUE(routed.ok());
  TestCluster cluster(job, routed.value());
  cluster.connect();
  PlainLoop plain(job);
  const std::vector<StepOutcome> outcomes{plain.step()};
  expect_equal_runs(cluster, cluster.run(0, 1), outcomes, plain);
  std::map<int32_t, double> losses;
  for (const ThreadRun& run : cluster.run(1, 1, true)) {
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    if (run.outcomes.empty()) continue;
    for (const MicroLoss& of : run.outcomes[0].losses) losses[of.micro.value] = of.loss;
  }
  const std::vector<MicroLoss> expected = plain.evaluate(job.micro_count(), 5);
  ASSERT_EQ(losses.size(), expected.size());
  for (const MicroLoss& of : expected) EXPECT_EQ(losses[of.micro.value], of.loss);
}

}  // namespace
}  // namespace tenuto
