// Workers are lost in the middle of a step, and the others do what is left of it: on whole clusters
// in one process, with the numbers of one plain loop, bit for bit.
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

#include "adapt/salvage.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/routed.h"
#include "test_cluster.h"
#include "trap.h"

namespace tenuto {
namespace {

constexpr int64_t kAllKept = 1 << 30;

// At a call of one worker, counted from the beginning of a run, that worker is cut off.
struct Cut : Trap {
  WorkerId victim;
};

// A cluster that loses workers and goes on with what is left.
class Survivors {
 public:
  Survivors(const Job& job, const Plan& plan, int64_t keep_bytes)
      : job_(job), plan_(plan), cluster_(job, plan), alive_(plan.schedule.lists.size(), true) {
    cluster_.keep_bytes = keep_bytes;
    cluster_.commits = true;
    cluster_.wrap_compute = [this](WorkerId self, Compute& under) -> std::unique_ptr<Compute> {
      if (self != cut_.victim) return nullptr;
      return std::make_unique<TrapCompute>(under, cut_);
    };
    cluster_.wrap_transport =
        [this](WorkerId self, std::unique_ptr<Transport> under) -> std::unique_ptr<Transport> {
      if (self != cut_.victim) return under;
      return std::make_unique<TrapTransport>(std::move(under), cut_);
    };
    cut_.deed = [this] { cluster_.network().lose(cut_.victim); };
  }

  // Runs to version `end`, losing the worker at a call. True when the call was reached.
  bool run_and_lose(WorkerId victim, int64_t at, int64_t end) {
    cut_.victim = victim;
    cut_.at = at;
    cut_.calls = 0;
    cluster_.mute = victim;
    cluster_.connect();
    const int64_t first = version_;
    (void)cluster_.run(first, end - first);
    const bool reached = cut_.calls > at;
    cut_.victim = {};
    alive_[static_cast<size_t>(victim.value)] = false;
    take_stock();
    return reached;
  }

  // Runs to version `end` without losing anybody and compares with a plain loop.
  void finish(int64_t end) {
    cluster_.mute = {};
    cluster_.connect();
    const std::vector<WorkerRun> runs = cluster_.run(version_, end - version_);
    PlainRun plain(job_);
    std::vector<StepOutcome> outcomes;
    for (int64_t step = 0; step < end; ++step) outcomes.push_back(plain.step());
    for (int32_t w = 0; w < cluster_.size(); ++w) {
      if (!alive_[static_cast<size_t>(w)]) continue;
      const WorkerRun& run = runs[static_cast<size_t>(w)];
      ASSERT_TRUE(run.status.ok()) << run.status.error().message;
      std::vector<float> weights;
      for (const StageId stage : cluster_.stages_of(w)) {
        const std::vector<float>& own = plain.weights(stage.value);
        weights.insert(weights.end(), own.begin(), own.end());
      }
      EXPECT_EQ(cluster_.device(w).weights(), weights) << "worker " << w;
      EXPECT_EQ(cluster_.device(w).version(), end);
      for (size_t i = 0; i < run.outcomes.size(); ++i) {
        const StepOutcome& expected = outcomes[static_cast<size_t>(version_) + i];
        EXPECT_EQ(run.outcomes[i].gradient_norm, expected.gradient_norm) << "worker " << w;
        for (const MicroLoss& loss : run.outcomes[i].losses) {
          EXPECT_EQ(loss.loss, expected.losses[static_cast<size_t>(loss.micro.value)].loss);
        }
      }
    }
  }

  int64_t ops() const { return ops_; }
  int64_t taken_back() const { return taken_back_; }
  int64_t copied() const { return copied_; }

 private:
  // Where everybody is, what they have, and what is left of the step that is open.
  void take_stock() {
    version_ = 1 << 20;
    for (size_t w = 0; w < alive_.size(); ++w) {
      if (alive_[w])
        version_ = std::min(version_, cluster_.device(static_cast<int32_t>(w)).version());
    }
    // What all have is committed.
    cluster_.set_standing({std::max(version_, cluster_.committed()), false});
    std::vector<Inventory> inventories;
    for (size_t w = 0; w < alive_.size(); ++w) {
      inventories.push_back(cluster_.inventory(static_cast<int32_t>(w), version_));
    }
    auto rest = salvage(plan_, inventories, alive_);
    ASSERT_TRUE(rest.ok()) << rest.error().message;
    const Status right = check(rest.value().plan, {}, rest.value().stores);
    ASSERT_TRUE(right.ok()) << right.error().message;
    TestCluster::Left left{rest.value().plan, {}};
    for (size_t w = 0; w < alive_.size(); ++w) {
      left.parts.push_back({rest.value().stores[w], {}, {}});
      for (const TakenBack& it : rest.value().back) {
        if (it.worker.value == static_cast<int32_t>(w)) left.parts[w].back.push_back(it.stage);
      }
    }
    ops_ += rest.value().ops;
    taken_back_ += static_cast<int64_t>(rest.value().back.size());
    copied_ += rest.value().totals_copied;
    const auto after = without_workers(plan_, alive_);
    ASSERT_TRUE(after.ok());
    for (size_t w = 0; w < alive_.size(); ++w) {
      if (!alive_[w]) cluster_.lose({static_cast<int32_t>(w)}, after.value());
    }
    cluster_.left = std::move(left);
  }

  const Job job_;
  const Plan plan_;
  Cut cut_;
  TestCluster cluster_;
  std::vector<bool> alive_;
  int64_t version_ = 0;
  int64_t ops_ = 0, taken_back_ = 0, copied_ = 0;
};

Job job_of(int32_t stages, int32_t pipelines, int32_t micros, bool split) {
  Job job = instant_job(stages, pipelines, micros);
  job.parallel.order = split ? "zb-h1" : "1f1b";
  job.parallel.split_backward = split;
  return job;
}

// Every worker is cut off at each of its calls in two steps that follow one another: the others end
// the step, and the one after, with the plain numbers. Also when nothing of what was sent is kept.
TEST(Resume, LossAtEveryCallOfSmallClusters) {
  for (const auto& [stages, pipelines, split, room] :
       {std::tuple(2, 2, true, kAllKept), std::tuple(2, 2, false, kAllKept),
        std::tuple(1, 3, true, kAllKept), std::tuple(2, 2, true, int64_t{0}),
        std::tuple(2, 2, false, int64_t{0})}) {
    const Job job = job_of(stages, pipelines, 2, split);
    const Plan plan = plan_of(job);
    const int64_t whole = 3 * stages * job.micro_count();
    int64_t points = 0, ops = 0, taken_back = 0, copied = 0;
    for (int32_t victim = 0; victim < stages * pipelines; ++victim) {
      for (int64_t at = 0;; ++at) {
        SCOPED_TRACE(cat(stages, " x ", pipelines, ", worker ", victim, " lost at call ", at));
        Survivors all(job, plan, room);
        const bool reached = all.run_and_lose({victim}, at, 2);
        if (!reached) break;
        all.finish(4);
        if (testing::Test::HasFailure()) return;
        ++points, ops += all.ops(), taken_back += all.taken_back(), copied += all.copied();
      }
    }
    std::printf(
        "%d x %d, %s kept: %ld losses, %.3f of a step's ops left, %ld Steps taken back, %ld totals "
        "copied\n",
        stages, pipelines, room == 0 ? "nothing" : "all", static_cast<long>(points),
        static_cast<double>(ops) / static_cast<double>(points * whole),
        static_cast<long>(taken_back), static_cast<long>(copied));
    EXPECT_LT(ops, points * whole * 7 / 10);
  }
}

// Two workers, the second while what the first took with it is under way; in a third of the rounds
// little or no room for what was sent.
TEST(Resume, LossesInRecovery) {
  Random random(23);
  for (int32_t round = 0; round < 120; ++round) {
    const auto stages = static_cast<int32_t>(1 + random.below(3));
    const bool split = random.below(3) > 0;
    const Job job = job_of(stages, 3, static_cast<int32_t>(1 + random.below(2)), split);
    const Plan plan = plan_of(job);
    const int64_t room = random.below(3) == 0 ? 256 * random.below(4) : kAllKept;
    const WorkerId first{static_cast<int32_t>(random.below(3 * stages))};
    WorkerId second = first;
    while (second == first) second = {static_cast<int32_t>(random.below(3 * stages))};
    const int64_t at = random.below(120), then = random.below(60);
    SCOPED_TRACE(cat("round ", round, ": ", stages, " stages, ", job.parallel.order, ", worker ",
                     first, " at call ", at, ", worker ", second, " at call ", then, ", room ",
                     room));
    Survivors all(job, plan, room);
    all.run_and_lose(first, at, 2);
    all.run_and_lose(second, then, 4);
    all.finish(5);
    if (testing::Test::HasFailure()) return;
  }
}

// A cluster that has ended its first step, and is told that something of it is lost.
class Ended {
 public:
  explicit Ended(bool split)
      : job_(job_of(2, 2, 2, split)), plan_(plan_of(job_)), cluster_(job_, plan_) {
    cluster_.keep_bytes = 0;
    cluster_.commits = true;
    cluster_.wrap_compute = [this](WorkerId, Compute& under) {
      return std::make_unique<Refusing>(under, refused_);
    };
    cluster_.connect();
    run();
    for (int32_t w = 0; w < cluster_.size(); ++w) stock_.push_back(cluster_.inventory(w, 0));
  }

  // Values of this kind, and of this stage or any for -1, are nowhere any more.
  void lose(ValueKind kind, int32_t stage) {
    for (Inventory& inventory : stock_) {
      std::erase_if(inventory.values, [&](const Value& value) {
        return value.kind == kind && (stage < 0 || value.stage.value == stage);
      });
    }
  }
  // Runs what is left; with `refused` no device of the first stage takes ops of that kind, and all
  // are at a standstill.
  void resume(std::optional<OpKind> refused = std::nullopt) {
    auto rest = salvage(plan_, stock_, std::vector<bool>(stock_.size(), true));
    ASSERT_TRUE(rest.ok()) << rest.error().message;
    const Status right = check(rest.value().plan, {}, rest.value().stores);
    ASSERT_TRUE(right.ok()) << right.error().message;
    TestCluster::Left left{rest.value().plan, {}};
    for (const auto& stored : rest.value().stores) left.parts.push_back({stored, {}, {}});
    for (const TakenBack& it : rest.value().back) {
      left.parts[static_cast<size_t>(it.worker.value)].back.push_back(it.stage);
    }
    taken_back_ = rest.value().back.size();
    refused_ = refused;
    cluster_.connect();
    cluster_.left = std::move(left);
    run();
    for (size_t w = 0; w < stock_.size(); ++w) {
      stock_[w] = cluster_.inventory(static_cast<int32_t>(w), 0);
    }
  }
  // All have ended the step with the plain numbers.
  void expect_plain() {
    PlainRun plain(job_);
    const StepOutcome outcome = plain.step();
    for (int32_t w = 0; w < cluster_.size(); ++w) {
      const WorkerRun& run = runs_[static_cast<size_t>(w)];
      ASSERT_TRUE(run.status.ok()) << run.status.error().message;
      EXPECT_EQ(cluster_.device(w).weights(), plain.weights(w % 2)) << "worker " << w;
      EXPECT_EQ(run.outcomes.front().gradient_norm, outcome.gradient_norm) << "worker " << w;
    }
  }
  size_t taken_back() const { return taken_back_; }
  const std::vector<Inventory>& stock() const { return stock_; }

 private:
  // Takes no ops of one kind at the first stage.
  struct Refusing : ForwardingCompute {
    Refusing(Compute& under, const std::optional<OpKind>& kind)
        : ForwardingCompute(under), refused(kind) {}
    Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
      if (op.kind == refused && op.stage.value == 0) return invalid("not this one");
      return under_.start(op, inputs_at, ticket);
    }
    const std::optional<OpKind>& refused;
  };

  void run() { runs_ = cluster_.run(0, 1); }

  const Job job_;
  const Plan plan_;
  std::optional<OpKind> refused_;
  TestCluster cluster_;
  std::vector<WorkerRun> runs_;
  std::vector<Inventory> stock_;
  size_t taken_back_ = 0;
};

// The first stage has to sum its gradients again, and what came from the second is not kept. Of
// that the total is there, and the verdict, so its Steps could be taken at once: they wait until
// the gradients are made, with the parameters as they were.
TEST(Resume, WhatIsOwedIsMadeBeforeTheStepIsTakenAgain) {
  for (const bool split : {true, false}) {
    SCOPED_TRACE(split);
    Ended all(split);
    all.expect_plain();
    all.lose(ValueKind::Total, 0);
    all.resume();
    EXPECT_EQ(all.taken_back(), 4u);
    all.expect_plain();
  }
}

// A backward for its gradient alone adds nothing to a sum, also where a whole backward would have.
TEST(Resume, WhatAGradientAloneLeavesIsInNoSum) {
  for (const bool split : {true, false}) {
    SCOPED_TRACE(split);
    Ended all(split);
    all.lose(ValueKind::Total, 0);
    all.lose(ValueKind::Verdict, -1);
    all.resume(OpKind::Measure);
    for (const Inventory& inventory : all.stock()) {
      for (const Value& value : inventory.values) {
        EXPECT_FALSE(value.kind == ValueKind::Partial && value.stage.value == 1);
      }
    }
    all.lose(ValueKind::Total, -1);
    all.resume();
    all.expect_plain();
  }
}

}  // namespace
}  // namespace tenuto
