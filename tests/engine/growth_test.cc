// All-reduces begin while the last backward of their stage still computes. The bits are those of a
// run in which they begin after it.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "engine/engine_cluster.h"
#include "engine/growing.h"
#include "engine/toy_job.h"
#include "runtime/list_table.h"

namespace tenuto {
namespace {

// Counts the ops that add to a sum while its all-reduce is under way.
class CountingDevice : public ForwardingDevice {
 public:
  CountingDevice(Device& under, std::atomic<int64_t>& early)
      : ForwardingDevice(under), early_(early) {}
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    const bool backward = op.kind == OpKind::BackwardInput || op.kind == OpKind::BackwardWeight;
    if (backward && open_ == op.stage) {
      ++early_;
      open_ = {};  // a whole backward has another, empty op
    }
    return under_.start(op, inputs_at, ticket);
  }
  Result<std::span<std::byte>> allocate(const Value& value) override {
    if (value.kind == ValueKind::Total) open_ = value.stage;
    return under_.allocate(value);
  }
  Status reduced(const Value& total) override {
    open_ = {};
    return under_.reduced(total);
  }

 private:
  std::atomic<int64_t>& early_;
  StageId open_;
};

// Says nothing about the growth of its sums.
class SilentDevice : public CountingDevice {
 public:
  using CountingDevice::CountingDevice;
  GradientGrowth* growth() override { return nullptr; }
};

class Growth : public ToyTest {
 protected:
  static constexpr int64_t kSteps = 2;

  Growth() {
    write_lines("a.txt", 400, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is more.\n";
    });
  }

  // Each stage has at least kLeastGrowthSlices slices for each of two chunks: 4 MiB.
  Job job(int32_t stages, int32_t pipelines, const std::string& order) const {
    Job job = toy_job(stages, 2);
    job.steps = kSteps;
    job.seed = 5;
    job.model.layers = 2 * stages;
    job.model.width = 256;
    job.model.sequence = 8;
    job.model.tied = false;
    job.model.dropout = 0.1;
    job.parallel.pipelines = pipelines;
    job.parallel.micro_rows = 1;
    job.parallel.order = order;
    job.parallel.split_backward = find_card(order)->splits_backward;
    return job;
  }

  struct Trained {
    State state;
    std::vector<double> norms;
    int64_t early = 0;
  };

  static Trained train(const Job& job, bool silent, bool separate_memory) {
    const Plan plan = plan_of_model(job);
    Trained all;
    std::atomic<int64_t> early{0};
    TestCluster cluster(job, plan, engines(job, plan, separate_memory));
    cluster.wrap_compute = [&](WorkerId, Device& under) -> std::unique_ptr<Device> {
      if (silent) return std::make_unique<SilentDevice>(under, early);
      return std::make_unique<CountingDevice>(under, early);
    };
    cluster.connect();
    for (const ThreadRun& run : cluster.run(0, kSteps)) {
      EXPECT_TRUE(run.status.ok()) << run.status.error().message;
      for (const StepOutcome& outcome : run.outcomes) all.norms.push_back(outcome.gradient_norm);
    }
    all.state = state_of(cluster, kSteps);
    all.early = early;
    return all;
  }

  // Trains with and without early all-reduces. Expects the same bits, and this number of early
  // ones in each step.
  static void expect_same(const Job& job, int64_t early, bool separate_memory = false) {
    const Trained with = train(job, false, separate_memory);
    const Trained without = train(job, true, separate_memory);
    EXPECT_EQ(with.early, early * kSteps);
    EXPECT_EQ(without.early, 0);
    EXPECT_EQ(with.norms, without.norms);
    EXPECT_EQ(with.state, without.state);
  }
};

TEST_F(Growth, WholeBackward) {
  expect_same(job(1, 2, "1f1b"), 2);
  expect_same(job(2, 2, "1f1b"), 4);
}

TEST_F(Growth, SplitBackward) {
  expect_same(job(1, 2, "zb-h1"), 2);
  expect_same(job(2, 2, "zb-h1"), 4);
}

TEST_F(Growth, ThreeMembers) {
  Job three = job(1, 3, "1f1b");
  three.model.layers = 3;
  expect_same(three, 3);
}

TEST_F(Growth, OneMicroBatch) {
  Job one = job(1, 2, "1f1b");
  one.parallel.micros = 1;
  expect_same(one, 2);
}

TEST_F(Growth, TwoStagesOfAWorker) {
  Job two = job(2, 2, "zb-v");
  two.model.layers = 12;
  expect_same(two, 8);
}

TEST_F(Growth, Recomputed) {
  Job again = job(2, 2, "1f1b");
  again.parallel.recompute = "all";
  expect_same(again, 4);
}

TEST_F(Growth, Bf16) {
  Job low = job(1, 2, "zb-h1");
  low.device.precision = "bf16";
  expect_same(low, 2);
  low.parallel.order = "1f1b";
  low.parallel.split_backward = false;
  expect_same(low, 2);
}

TEST_F(Growth, SeparateMemory) { expect_same(job(2, 2, "1f1b"), 4, true); }

// A tied weight in one stage gets its gradient from both ends of the model at once.
TEST_F(Growth, TiedInOneStage) {
  for (const char* order : {"1f1b", "zb-h1"}) {
    Job tied = job(1, 2, order);
    tied.model.tied = true;
    expect_same(tied, 2);
  }
}

TEST_F(Growth, NotWithoutNeed) {
  Job tied = job(2, 2, "1f1b");  // two stages share a weight
  tied.model.tied = true;
  EXPECT_EQ(train(tied, false, false).early, 0);
  Job exact = job(1, 2, "1f1b");  // sums are made at the end of an op
  exact.resilience.numerics = "reproducible";
  EXPECT_EQ(train(exact, false, false).early, 0);
  Job small = job(1, 2, "1f1b");  // too few slices
  small.model.width = 64;
  EXPECT_EQ(train(small, false, false).early, 0);
}

TEST(GrowingParts, LeadingPartsCount) {
  const SumGrowth growth{100, {{60, 100}, {0, 10}, {30, 60}, {10, 30}}};
  GrowingParts parts(growth, 50);
  for (int round = 0; round < 2; ++round) {
    parts.begin();
    EXPECT_EQ(parts.complete(2), 0);
    EXPECT_EQ(parts.complete(0), 0);  // 40 elements
    EXPECT_EQ(parts.complete(1), 3);  // and 40 more
    EXPECT_EQ(parts.complete(3), 0);  // the op's end says so
  }
}

TEST(GrowingParts, OncePerOp) {
  GrowingParts parts({10, {{0, 10}}}, 5);
  parts.begin();
  EXPECT_EQ(parts.complete(0), 1);
  EXPECT_FALSE(parts.was_late());
  parts.complete(0);
  EXPECT_TRUE(parts.was_late());
  parts.begin();
  EXPECT_FALSE(parts.was_late());
}

}  // namespace
}  // namespace tenuto
