// Steps that are taken before the norm of all is known: whatever is clipped and skipped afterwards,
// the numbers are those of one plain loop that waits for it, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/random.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/lower.h"
#include "plan/routed.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

// What became of the steps.
struct Tally {
  int committed = 0;             // stages that had taken what was right
  int rolled_back = 0;           // stages that took a step back
  int clipped = 0, skipped = 0;  // steps
};

// The clip that a share of the steps exceeds, and gradients that at times are not finite.
PacedOptions troubled(const Job& job, int64_t steps, double share) {
  PlainRun plain(job);
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

// Runs a plan whose stages step ahead, and the plain loop beside it.
Tally expect_plain_numbers(const Job& job, const Plan& plan, int64_t steps, double share) {
  Tally tally;
  EXPECT_TRUE(is_staggered(plan.schedule));
  const Status right = check(plan);
  EXPECT_TRUE(right.ok()) << right.error().message;
  const PacedOptions options = troubled(job, steps, share);
  TestCluster cluster(job, plan, monotonic_clock(), options);
  cluster.connect();
  PlainRun plain(job, options);
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

TEST(Staggered, FourHundredStepsAreThoseOfSynchronousClipping) {
  for (const bool split : {false, true}) {
    for (const int32_t pipelines : {1, 2}) {
      SCOPED_TRACE(testing::Message() << pipelines << " pipelines, split " << split);
      const Job job = staggered_job(4, pipelines, 3, split);
      const Tally tally = expect_plain_numbers(job, plan_of(job), 400, 0.1);
      print(pipelines == 1 ? "one pipeline" : "two pipelines", tally);
      EXPECT_GT(tally.committed, 1000);
      EXPECT_GT(tally.rolled_back, 10);
      EXPECT_GT(tally.clipped, 5);
      EXPECT_GT(tally.skipped, 5);
    }
  }
}

}  // namespace
}  // namespace tenuto
