// The least memory that a job needs: computed by hand, and never more than what its workers hold.
#include "world/memory_need.h"

#include <gtest/gtest.h>

#include "app/make_job_plan.h"

namespace tenuto {
namespace {

constexpr double kProcess = 64.0 * (1 << 20);

Job small_job() {
  Job job;
  job.model.layers = 2;
  job.model.width = 64;  // so that each stage has one block
  job.model.sequence = 8;
  job.parallel.stages = 2;
  job.parallel.pipelines = 2;
  job.parallel.micros = 2;
  job.parallel.micro_rows = 3;
  return job;
}

double need(const Job& job, const std::vector<WorkerId>& workers) {
  const auto plan = make_job_plan(job);
  EXPECT_TRUE(plan.ok());
  return memory_of(job, plan.value(), workers);
}

TEST(MemoryNeed, CountsParametersMomentsGradientsAndAMicroBatch) {
  const Job job = small_job();
  // Embedding and positions, then a block: its two norms and four linear layers.
  const double block = 4 * 64 + (3 * 64 * 64 + 3 * 64) + (64 * 64 + 64) + (4 * 64 * 64 + 4 * 64) +
                       (4 * 64 * 64 + 64);
  const double first = 256 * 64 + 8 * 64 + block;
  const double stash = 10.0 * 3 * 8 * 64 * 4;
  // The first stage begins two micro-batches before its first backward, the last one a single one.
  EXPECT_EQ(need(job, {{0}}), kProcess + first * 16 + 2 * stash);
  EXPECT_EQ(need(job, {{0}, {2}}), 2 * need(job, {{0}}));
  const double last = block + 2 * 64 + 256 * 64;
  EXPECT_EQ(need(job, {{1}}), kProcess + last * 16 + stash);
}

TEST(MemoryNeed, StagesThatRecomputeKeepTheirInputs) {
  Job job = small_job();
  job.parallel.stages = 3;
  job.model.layers = 3;
  job.parallel.micros = 3;
  const double input = 3.0 * 8 * 64 * 4, stash = 10 * input;
  for (const char* dispatch : {"ready", "listed"}) {
    job.parallel.dispatch = dispatch;
    job.parallel.recompute = "none";
    const double first = need(job, {{0}}), middle = need(job, {{1}}), last = need(job, {{2}});
    job.parallel.recompute = "all";
    // Stage i of 3 holds 3 - i micro-batches; one of them has its stash while its backward runs.
    EXPECT_EQ(first - need(job, {{0}}), 2 * stash) << dispatch;
    EXPECT_EQ(middle - need(job, {{1}}), 2 * stash - 2 * input - stash) << dispatch;
    EXPECT_EQ(last - need(job, {{2}}), -input) << dispatch;
  }
}

TEST(MemoryNeed, DependsOnTheStagesOfAWorker) {
  Job job = small_job();
  const double one = need(job, {{0}});
  job.optimizer.kind = "sgd";
  job.optimizer.momentum = 0;
  EXPECT_LT(need(job, {{0}}), one);
  job = small_job();
  const std::vector<WorkerId> all{{0}, {1}, {2}, {3}};
  const double without = need(job, all);
  job.resilience.copies = 1;  // adds states of other stages, but no activations
  EXPECT_GT(need(job, all), without);
  EXPECT_LT(need(job, all), without + need(job, {{0}}) + need(job, {{1}}) - 2 * kProcess);
  job = small_job();
  job.device.kind = "cuda";
  EXPECT_EQ(need(job, {{0}}), kProcess);
  job.device.kind = "paced";
  EXPECT_EQ(need(job, {{0}}), kProcess / 16 + 2.0 * 4096 + 65536);
}

}  // namespace
}  // namespace tenuto
