// Workers are lost in the middle of a step, and the others run its remaining ops: on whole clusters
// in one process, with the numbers of one plain loop, bit for bit.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"
#include "survivors.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

constexpr int64_t kAllKept = 1 << 30;

// Runs to version `end` and compares with a plain loop.
void expect_plain(const Job& job, TestCluster& cluster, Survivors& all, int64_t end) {
  const int64_t first = all.version();
  const std::vector<ThreadRun> runs = all.finish(end);
  PlainLoop plain(job);
  std::vector<StepOutcome> outcomes;
  for (int64_t step = 0; step < end; ++step) outcomes.push_back(plain.step());
  for (int32_t w = 0; w < cluster.size(); ++w) {
    if (!all.alive(w)) continue;
    const ThreadRun& run = runs[static_cast<size_t>(w)];
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    std::vector<float> weights;
    for (const StageId stage : cluster.stages_of(w)) {
      const std::vector<float>& own = plain.weights(stage.value);
      weights.insert(weights.end(), own.begin(), own.end());
    }
    EXPECT_EQ(cluster.device(w).weights(), weights) << "worker " << w;
    EXPECT_EQ(cluster.device(w).version(), end);
    for (size_t i = 0; i < run.outcomes.size(); ++i) {
      const StepOutcome& expected = outcomes[static_cast<size_t>(first) + i];
      EXPECT_EQ(run.outcomes[i].gradient_norm, expected.gradient_norm) << "worker " << w;
    }
  }
  for (int64_t step = first; step < end; ++step) {
    std::map<int32_t, double> losses;
    for (const MicroLoss& of : outcomes[static_cast<size_t>(step)].losses) {
      losses[of.micro.value] = of.loss;
    }
    EXPECT_EQ(all.losses(step), losses) << "step " << step;
  }
}

Job job_of(int32_t stages, int32_t pipelines, int32_t micros, const char* order, bool split) {
  Job job = instant_job(stages, pipelines, micros);
  job.parallel.order = order;
  job.parallel.split_backward = split;
  return job;
}

struct Layout {
  int32_t stages, pipelines;
  const char* order;
  bool split;
  int64_t keep_bytes;
  const char* sums = "ring";
};

// Cuts each worker off at each of its calls in two successive steps: the others end these and later
// steps with the plain loop's numbers. Also when no sent messages are kept, and when workers hold
// several stages.
TEST(Resume, LossAtEveryCallOfSmallClusters) {
  int64_t spared = 0;
  for (const auto& [stages, pipelines, order, split, keep_bytes, sums] :
       {Layout{2, 2, "zb-h1", true, kAllKept}, Layout{2, 2, "1f1b", false, kAllKept},
        Layout{1, 3, "zb-h1", true, kAllKept}, Layout{2, 2, "zb-h1", true, 0},
        Layout{2, 2, "1f1b", false, 0}, Layout{2, 2, "zb-v", true, kAllKept},
        Layout{2, 2, "zb-v", true, 0}, Layout{1, 2, "interleaved", false, kAllKept},
        Layout{1, 4, "1f1b", false, kAllKept, "late-one"},
        Layout{1, 4, "1f1b", false, 0, "late-one"},
        Layout{2, 3, "zb-h1", true, kAllKept, "halving"}}) {
    Job job = job_of(stages, pipelines, 2, order, split);
    job.parallel.all_reduce = sums;
    const Plan plan = plan_of(job);
    const int64_t whole = 3 * plan.schedule.stage_count * job.micro_count();
    int64_t points = 0, ops = 0, taken_back = 0, copied = 0;
    for (int32_t victim = 0; victim < stages * pipelines; ++victim) {
      for (int64_t at = 0;; at += kSanitized ? 7 : 1) {
        SCOPED_TRACE(
            cat(order, " ", pipelines, " x ", stages, ", worker ", victim, " lost at call ", at));
        TestCluster cluster(job, plan);
        cluster.keep_bytes = keep_bytes;
        Survivors all(cluster, plan);
        const bool reached = all.run_and_lose({victim}, at, 2);
        if (!reached) break;
        expect_plain(job, cluster, all, 4);
        if (testing::Test::HasFailure()) return;
        ++points, ops += all.ops(), spared += all.spared();
        taken_back += all.taken_back(), copied += all.copied();
      }
    }
    std::printf(
        "%s %d x %d, %s, %s kept: %ld losses, %.3f of a step's ops left, %ld Steps taken back, %ld "
        "totals copied\n",
        order, pipelines, stages, sums, keep_bytes == 0 ? "nothing" : "all",
        static_cast<long>(points), static_cast<double>(ops) / static_cast<double>(points * whole),
        static_cast<long>(taken_back), static_cast<long>(copied));
  }
  // How much was spared depends on how far the others had come, and so on the machine. Survivors
  // has checked each loss against what the others had; here some of them must have had a sum.
  EXPECT_GT(spared, 0);
}

// Two workers are lost, the second while the others make up for the first; in a third of the rounds
// little or no memory for sent messages.
TEST(Resume, LossesInRecovery) {
  Random random(23);
  for (int32_t round = 0; round < 120; ++round) {
    const auto stages = static_cast<int32_t>(1 + random.below(3));
    const bool split = random.below(3) > 0;
    const bool several = stages == 2 && random.below(2) == 0;
    const char* const order = !split ? "1f1b" : several ? "zb-v" : "zb-h1";
    const Job job = job_of(stages, 3, static_cast<int32_t>(1 + random.below(2)), order, split);
    const Plan plan = plan_of(job);
    const int64_t keep_bytes = random.below(3) == 0 ? 256 * random.below(4) : kAllKept;
    const WorkerId first{static_cast<int32_t>(random.below(3 * stages))};
    WorkerId second = first;
    while (second == first) second = {static_cast<int32_t>(random.below(3 * stages))};
    const int64_t at = random.below(120), then = random.below(60);
    SCOPED_TRACE(cat("round ", round, ": ", stages, " stages, ", job.parallel.order, ", worker ",
                     first, " at call ", at, ", worker ", second, " at call ", then,
                     ", keep_bytes ", keep_bytes));
    TestCluster cluster(job, plan);
    cluster.keep_bytes = keep_bytes;
    Survivors all(cluster, plan);
    all.run_and_lose(first, at, 2);
    all.run_and_lose(second, then, 4);
    expect_plain(job, cluster, all, 5);
    if (testing::Test::HasFailure()) return;
  }
}

// An `Ended` cluster of paced devices, with its job.
struct PacedEnded {
  explicit PacedEnded(bool split)
      : job(job_of(2, 2, 2, split ? "zb-h1" : "1f1b", split)),
        cluster(job, plan_of(job)),
        all(cluster, plan_of(job)) {}

  // Checks that all workers have ended the step with the plain loop's numbers.
  void expect_plain() {
    PlainLoop plain(job);
    const StepOutcome outcome = plain.step();
    for (int32_t w = 0; w < cluster.size(); ++w) {
      const ThreadRun& run = all.runs()[static_cast<size_t>(w)];
      ASSERT_TRUE(run.status.ok()) << run.status.error().message;
      EXPECT_EQ(cluster.device(w).weights(), plain.weights(w % 2)) << "worker " << w;
      EXPECT_EQ(run.outcomes.front().gradient_norm, outcome.gradient_norm) << "worker " << w;
    }
  }

  const Job job;
  TestCluster cluster;
  Ended all;
};

// The first stage must sum its gradients again, but the messages from the second stage were not
// kept. The second stage has its total and the clip decision, so it could take its optimizer step
// at once; it must first make those gradients again, with the old parameters.
TEST(Resume, LostGradientsAreMadeBeforeTheStepIsRepeated) {
  for (const bool split : {true, false}) {
    SCOPED_TRACE(split);
    PacedEnded paced(split);
    Ended& all = paced.all;
    paced.expect_plain();
    all.lose(ValueKind::Total, 0);
    all.resume();
    EXPECT_EQ(all.taken_back(), 4u);
    paced.expect_plain();
  }
}

// A backward that is run again for its input gradient alone adds nothing to a weight gradient's
// sum, even where backwards are whole.
TEST(Resume, ARepeatedInputGradientAddsToNoSum) {
  for (const bool split : {true, false}) {
    SCOPED_TRACE(split);
    PacedEnded paced(split);
    Ended& all = paced.all;
    all.lose(ValueKind::Total, 0);
    all.lose(ValueKind::ClipDecision, -1);
    all.resume(OpKind::Measure);
    for (const Inventory& inventory : all.stock()) {
      for (const Value& value : inventory.values) {
        EXPECT_FALSE(value.kind == ValueKind::Partial && value.stage.value == 1);
      }
    }
    all.lose(ValueKind::Total, -1);
    all.resume();
    paced.expect_plain();
  }
}

}  // namespace
}  // namespace tenuto
