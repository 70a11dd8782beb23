// Workers are lost in the middle of a step, and the others run the rest of it. Each test runs a
// cluster of engines in one process, and expects the bits of a run in which no worker is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/random.h"
#include "base/text.h"
#include "engine/engine_cluster.h"
#include "engine/toy_job.h"
#include "runtime/survivors.h"
#include "sanitized.h"
#include "truth/bound.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAllKept = 1 << 30;
constexpr int64_t kSteps = 4;

// Saves shards of all stages into a folder. Returns their paths.
std::vector<std::string> shards_of(TestCluster& cluster, const std::string& folder) {
  fs::create_directories(folder);
  std::map<int32_t, std::string> shards;
  for (int32_t w = 0; w < cluster.size(); ++w) {
    for (const StageId stage : cluster.stages_of(w)) {
      const std::string path = cat(folder, "/stage-", stage, ".safetensors");
      if (!shards.try_emplace(stage.value, path).second) continue;
      EXPECT_TRUE(cluster.compute(w).save(stage, path).ok());
    }
  }
  std::vector<std::string> paths;
  for (const auto& [stage, path] : shards) paths.push_back(path);
  return paths;
}

// The results of the run in which no worker is lost.
struct Undisturbed {
  State state;
  std::vector<double> norms;
  std::map<int64_t, std::map<int32_t, double>> losses;  // by step and micro-batch
};

Undisturbed run_undisturbed(const Job& job, const Plan& plan, int64_t steps) {
  TestCluster cluster(job, plan, engines(job, plan));
  cluster.connect();
  Undisturbed all;
  for (const ThreadRun& run : cluster.run(0, steps)) {
    EXPECT_TRUE(run.status.ok()) << run.status.error().message;
    for (size_t i = 0; i < run.outcomes.size(); ++i) {
      all.norms.resize(run.outcomes.size());
      all.norms[i] = run.outcomes[i].gradient_norm;
      for (const MicroLoss& of : run.outcomes[i].losses) {
        all.losses[static_cast<int64_t>(i)][of.micro.value] = of.loss;
      }
    }
  }
  all.state = state_of(cluster, steps);
  return all;
}

class EngineRest : public ToyTest {
 protected:
  EngineRest() {
    write_lines("a.txt", 400, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is more.\n";
    });
  }

  // Two micro-batches for each pipeline, sums that do not depend on which worker made them, and a
  // clip that some norms exceed.
  Job job(int32_t stages, int32_t pipelines, const std::string& order) const {
    Job job = toy_job(stages, 2);
    job.steps = kSteps;
    job.seed = 3;
    job.model.width = 16;
    job.model.sequence = 8;
    job.model.dropout = 0.1;
    job.optimizer.clip = 1.5;
    job.parallel.pipelines = pipelines;
    job.parallel.micro_rows = 1;
    job.parallel.order = order;
    job.parallel.split_backward = find_card(order)->splits_backward;
    job.resilience.numerics = "reproducible";
    return job;
  }
};

// Runs to the end, and compares with the run in which no worker is lost.
void expect_same(TestCluster& cluster, Survivors& all, const Undisturbed& undisturbed) {
  const int64_t first = all.version(), end = static_cast<int64_t>(undisturbed.norms.size());
  const std::vector<ThreadRun> runs = all.finish(end);
  for (int32_t w = 0; w < cluster.size(); ++w) {
    if (!all.alive(w)) continue;
    const ThreadRun& run = runs[static_cast<size_t>(w)];
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    for (size_t i = 0; i < run.outcomes.size(); ++i) {
      const double norm = undisturbed.norms[static_cast<size_t>(first) + i];
      EXPECT_EQ(run.outcomes[i].gradient_norm, norm) << "worker " << w;
    }
  }
  EXPECT_EQ(state_of(cluster, end), undisturbed.state);
  for (int64_t step = first; step < end; ++step) {
    EXPECT_EQ(all.losses(step), undisturbed.losses.at(step)) << "step " << step;
  }
}

// A kind of cluster, and the calls at which workers are lost.
struct Case {
  const char* name;
  Job job;
  int64_t keep_bytes = kAllKept;
  bool separate_memory = false;
  int64_t stride = 3;  // from one call at which a worker is lost to the next
};

// Loses each worker at every `stride`-th of its calls in the first two steps. Returns the number of
// weight gradients that the survivors had and that were not made again. How far the survivors are
// depends on the machine's timing, so at some calls they may have none.
int64_t lose_at_calls(const Case& of) {
  const Plan plan = plan_of_model(of.job);
  Plan keeping = plan;  // the same without recomputation
  for (Stage& stage : keeping.stages) stage.recompute = false;
  const Undisturbed undisturbed = run_undisturbed(of.job, keeping, kSteps);
  const int64_t whole = 3 * plan.schedule.stage_count * of.job.micro_count();
  const int64_t stride = kSanitized ? 4 * of.stride : of.stride;
  int64_t points = 0, ops = 0, spared = 0, taken_back = 0, copied = 0;
  for (int32_t victim = 0; victim < of.job.worker_count(); ++victim) {
    for (int64_t at = victim % stride;; at += stride) {
      SCOPED_TRACE(cat(of.name, ", worker ", victim, " lost at call ", at));
      TestCluster cluster(of.job, plan, engines(of.job, plan, of.separate_memory));
      cluster.keep_bytes = of.keep_bytes;
      Survivors all(cluster, plan);
      if (!all.run_and_lose({victim}, at, 2)) break;
      expect_same(cluster, all, undisturbed);
      if (testing::Test::HasFailure()) return spared;
      ++points, ops += all.ops(), spared += all.spared();
      taken_back += all.taken_back(), copied += all.copied();
    }
  }
  std::printf(
      "%s: %ld losses, %.3f of a step's ops left, %ld Steps taken back, %ld totals copied\n",
      of.name, static_cast<long>(points),
      static_cast<double>(ops) / static_cast<double>(points * whole), static_cast<long>(taken_back),
      static_cast<long>(copied));
  return spared;
}

TEST_F(EngineRest, LossAtEveryCallWithASplitBackward) {
  EXPECT_GT(lose_at_calls({.name = "2 x 2 split", .job = job(2, 2, "zb-h1"), .stride = 1}), 0);
}

TEST_F(EngineRest, LossAtEveryCallWithAWholeBackward) {
  EXPECT_GT(lose_at_calls({.name = "2 x 2 whole", .job = job(2, 2, "1f1b"), .stride = 1}), 0);
}

TEST_F(EngineRest, LossWithoutKeptMessages) {
  lose_at_calls({.name = "nothing kept, split", .job = job(2, 2, "zb-h1"), .keep_bytes = 0});
  lose_at_calls({.name = "nothing kept, whole", .job = job(2, 2, "1f1b"), .keep_bytes = 0});
}

TEST_F(EngineRest, LossInOtherLayouts) {
  lose_at_calls({.name = "3 x 1", .job = job(1, 3, "zb-h1")});
  lose_at_calls({.name = "2 x 2 with two stages each", .job = job(2, 2, "zb-v"), .stride = 5});
  lose_at_calls({.name = "2 x 4", .job = job(4, 2, "1f1b"), .stride = 9});
}

TEST_F(EngineRest, LossWithMomentumBf16AndATiedHead) {
  Case momentum{.name = "momentum", .job = job(2, 2, "1f1b")};
  momentum.job.optimizer.kind = "sgd";
  momentum.job.optimizer.learning_rate = 0.1;
  lose_at_calls(momentum);
  Case low{.name = "bf16", .job = job(2, 2, "zb-h1")};
  low.job.device.precision = "bf16";
  lose_at_calls(low);
  Case tied{.name = "tied head", .job = job(2, 2, "zb-h1")};
  tied.job.model.tied = true;
  lose_at_calls(tied);
}

TEST_F(EngineRest, LossWhereStagesRecompute) {
  for (const char* order : {"zb-h1", "1f1b"}) {
    Case again{.name = order, .job = job(2, 2, order)};
    again.job.parallel.recompute = "all";
    lose_at_calls(again);
  }
}

TEST_F(EngineRest, LossOfADeviceWithMemoryOfItsOwn) {
  lose_at_calls(
      {.name = "separate memory", .job = job(2, 2, "zb-h1"), .separate_memory = true, .stride = 5});
}

// Two workers are lost, the second while the others make again what the first had.
TEST_F(EngineRest, LossesInRecovery) {
  Random random(29);
  for (const char* order : {"zb-h1", "1f1b", "zb-v"}) {
    const Job own = job(2, 3, order);
    const Plan plan = plan_of_model(own);
    const Undisturbed undisturbed = run_undisturbed(own, plan, 5);
    for (int32_t round = 0; round < (kSanitized ? 3 : 12); ++round) {
      const int64_t keep_bytes = random.below(3) == 0 ? 0 : kAllKept;
      const WorkerId first{static_cast<int32_t>(random.below(6))};
      WorkerId second = first;
      while (second == first) second = {static_cast<int32_t>(random.below(6))};
      const int64_t at = random.below(90), then = random.below(60);
      SCOPED_TRACE(cat(order, " round ", round, ": worker ", first, " at call ", at, ", worker ",
                       second, " at call ", then, ", keep_bytes ", keep_bytes));
      TestCluster cluster(own, plan, engines(own, plan));
      cluster.keep_bytes = keep_bytes;
      Survivors all(cluster, plan);
      all.run_and_lose(first, at, 2);
      all.run_and_lose(second, then, 4);
      expect_same(cluster, all, undisturbed);
      if (HasFailure()) return;
    }
  }
}

// By default the rounding of a sum depends on which worker adds what: the run stays within the
// bound of these rounding errors.
TEST_F(EngineRest, PlainSumsStayWithinTheirBound) {
  for (const auto& [order, width] : {std::pair{"zb-h1", 16}, {"1f1b", 16}, {"1f1b", 256}}) {
    Job own = job(2, 2, order);
    own.steps = 10;
    own.model.width = width;
    own.model.layers = width < 256 ? 2 : 4;  // 4: sums are reduced while they grow
    own.resilience.numerics = "fast";
    const Plan plan = plan_of_model(own);
    const PlainResult plain = run_plain(own);
    const SumSpread spread = spread_of(own, plain, 1);
    for (const auto& [victim, at] : {std::pair{0, 31}, {1, 50}, {2, 75}, {3, 99}}) {
      SCOPED_TRACE(cat(order, ", worker ", victim, " lost at call ", at));
      TestCluster cluster(own, plan, engines(own, plan));
      cluster.keep_bytes = kAllKept;
      Survivors all(cluster, plan);
      ASSERT_TRUE(all.run_and_lose({victim}, at, own.steps));
      const int64_t first = all.version();
      all.finish(own.steps);
      // Take the losses of the earlier steps, in which no worker was lost, from the plain run: a
      // worker that was stopped right after an update has not reported its losses of that step.
      std::vector<double> losses(plain.losses.begin(), plain.losses.begin() + first);
      for (int64_t step = first; step < own.steps; ++step) {
        ASSERT_EQ(all.losses(step).size(), static_cast<size_t>(own.micro_count()));
        losses.push_back(0);
        for (const auto& [micro, loss] : all.losses(step)) losses.back() += loss;
        losses.back() /= own.micro_count();
      }
      expect_within(spread, plain, losses, read_parameters(shards_of(cluster, place("shards"))));
    }
  }
}

// An engine cluster that has ended its first step.
struct EngineEnded {
  explicit EngineEnded(const Job& own)
      : job(own),
        plan(plan_of_model(own)),
        undisturbed(run_undisturbed(own, plan, 1)),
        cluster(job, plan, engines(job, plan)),
        all(cluster, plan) {}

  // All workers have ended the step as if nothing had been lost.
  void expect_same() {
    for (const ThreadRun& run : all.runs()) {
      ASSERT_TRUE(run.status.ok()) << run.status.error().message;
      EXPECT_EQ(run.outcomes.front().gradient_norm, undisturbed.norms.front());
    }
    EXPECT_EQ(state_of(cluster, 1), undisturbed.state);
  }

  const Job job;
  const Plan plan;
  const Undisturbed undisturbed;
  TestCluster cluster;
  Ended all;
};

// Values are lost but no workers, so each worker makes the same sums again, with the same bits also
// in plain numerics.
class EngineEndedRest : public EngineRest {
 protected:
  template <class Check>
  void for_each_kind(const Check& check) {
    for (const char* order : {"zb-h1", "1f1b"}) {
      for (const char* numerics : {"fast", "reproducible"}) {
        SCOPED_TRACE(cat(order, ", ", numerics));
        Job own = job(2, 2, order);
        own.resilience.numerics = numerics;
        EngineEnded engine(own);
        engine.expect_same();
        check(engine);
        engine.expect_same();
      }
    }
  }
};

// The total of the first stage is lost, so the Steps are undone. The first stage sums its gradients
// again; the second stage, with the parameters before its Step, makes the inputs for these again.
TEST_F(EngineEndedRest, LostGradientsAreMadeBeforeTheStepIsRepeated) {
  for_each_kind([](EngineEnded& engine) {
    engine.all.lose(ValueKind::Total, 0);
    engine.all.resume();
    EXPECT_EQ(engine.all.taken_back(), 4u);
  });
}

// A backward that runs again only for its input gradient adds nothing to a sum, even if it is a
// whole backward. The weight work that a split one leaves is added once, when a later rest needs
// it.
TEST_F(EngineEndedRest, ARepeatedInputGradientAddsToNoSum) {
  for_each_kind([](EngineEnded& engine) {
    engine.all.lose(ValueKind::Total, 0);
    engine.all.lose(ValueKind::ClipDecision, -1);
    engine.all.resume(OpKind::Measure);
    for (const Inventory& inventory : engine.all.stock()) {
      for (const Value& value : inventory.values) {
        EXPECT_FALSE(value.kind == ValueKind::Partial && value.stage.value == 1);
      }
    }
    engine.all.lose(ValueKind::Total, -1);
    engine.all.resume();
  });
}

// One engine that holds the only stage, run op by op.
class OneEngine {
 public:
  explicit OneEngine(const Job& job)
      : job_(job), plan_(plan_of_model(job_)), engine_(engines(job_, plan_)({{0}}, mailbox_)) {}

  Device& engine() { return *engine_; }
  void run(OpKind kind) {
    Op op;
    op.kind = kind;
    op.stage = {0};
    if (has_micro(op)) op.micro = {0};
    ASSERT_TRUE(engine_->start(op, {}, Ticket{7}).ok());
    const auto done = mailbox_.wait(std::chrono::seconds(60));
    ASSERT_TRUE(done.ok());
    ASSERT_TRUE(done.value().status.ok()) << done.value().status.error().message;
  }
  // Runs the backward of the micro-batch, and measures the norm of this gradient alone.
  void run_to_the_norm() {
    run(OpKind::BackwardInput);
    run(OpKind::BackwardWeight);
    const auto own = engine_->bytes({ValueKind::Partial, -1, {0}, {}});
    const auto total = engine_->allocate({ValueKind::Total, -1, {0}, {}});
    ASSERT_TRUE(own.ok() && total.ok());
    std::copy(own.value().begin(), own.value().end(), total.value().begin());
    run(OpKind::Measure);
  }
  std::vector<std::byte> state() {
    std::vector<std::byte> bytes(static_cast<size_t>(engine_->state_bytes({0})));
    EXPECT_TRUE(engine_->read_state({0}, 0, bytes).ok());
    return bytes;
  }

 private:
  const Job job_;
  const Plan plan_;
  QueueMailbox mailbox_;
  std::unique_ptr<Device> engine_;
};

// A stash made before a Step is right again after the Step is taken back, because the parameters
// are the same again.
TEST_F(EngineRest, AStashIsValidAfterItsStepIsUndone) {
  for (const char* order : {"zb-h1", "1f1b"}) {
    SCOPED_TRACE(order);
    OneEngine one(job(1, 2, order));
    ASSERT_TRUE(one.engine().begin(0).ok());
    one.run(OpKind::Forward);
    one.run_to_the_norm();
    one.run(OpKind::Forward);
    one.run(OpKind::Step);
    const std::vector<std::byte> stepped = one.state();
    const RestPart rest{{{ValueKind::Stash, -1, {0}, {0}}}, {{0}}, {}};
    ASSERT_TRUE(one.engine().resume(0, rest).ok());
    EXPECT_NE(one.state(), stepped);
    one.run_to_the_norm();
    one.run(OpKind::Step);
    EXPECT_EQ(one.state(), stepped);
  }
}

// A resume that names values which the engine does not have is refused.
TEST_F(EngineRest, RefusesToResumeWithMissingValues) {
  OneEngine one(job(1, 2, "zb-h1"));
  ASSERT_TRUE(one.engine().begin(0).ok());
  one.run(OpKind::Forward);
  for (const ValueKind kind : {ValueKind::Partial, ValueKind::WeightWork, ValueKind::Total}) {
    const MicroId micro = kind == ValueKind::Total ? MicroId{} : MicroId{0};
    const Result<Duration> resumed = one.engine().resume(0, {{{kind, -1, {0}, micro}}, {}, {}});
    EXPECT_FALSE(resumed.ok());
    EXPECT_EQ(resumed.error().code, Code::Invalid);
  }
  EXPECT_FALSE(one.engine().resume(0, {{}, {{0}}, {}}).ok());  // no Step to take back
  EXPECT_FALSE(one.engine().resume(3, {}).ok());
}

}  // namespace
}  // namespace tenuto
