// Clusters on threads that lose workers in the middle of a step and go on with what is left of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "adapt/salvage.h"
#include "test_cluster.h"
#include "trap.h"

namespace tenuto {

// A cluster, and where its steps have come to.
class Survivors {
 public:
  // The cluster is the plan's, and is wrapped here; what it may keep is set by the caller.
  Survivors(TestCluster& cluster, const Plan& plan);

  // Runs to version `end`, losing the worker at a call to device or wire, counted from the
  // beginning of the run. True when the call was reached.
  bool run_and_lose(WorkerId victim, int64_t at, int64_t end);
  // Runs to version `end` without losing anybody. The runs begin with the step of version() before,
  // those of the dead are empty.
  std::vector<ThreadRun> finish(int64_t end);

  // The version that all have.
  int64_t version() const { return version_; }
  bool alive(int32_t worker) const { return alive_[static_cast<size_t>(worker)]; }
  // The losses of a step that those who live know of, by micro-batch.
  const std::map<int32_t, double>& losses(int64_t step) { return losses_[step]; }
  // Of all that was left of steps: the ops, the weight gradients that the sums of those who live
  // spared, the Steps taken back, the totals copied.
  int64_t ops() const { return ops_; }
  int64_t spared() const { return spared_; }
  int64_t taken_back() const { return taken_back_; }
  int64_t copied() const { return copied_; }

 private:
  // At a call of one worker that worker is cut off.
  struct Cut : Trap {
    WorkerId victim;
  };

  int64_t common_version();
  void take_stock();
  void expect_nothing_twice(const std::vector<Inventory>& inventories, const Rest& rest,
                            int64_t losses);
  std::vector<MicroId> unknown_losses();
  void note_losses(const std::vector<ThreadRun>& runs, int64_t first);

  TestCluster& cluster_;
  const Plan plan_;
  Cut cut_;
  std::vector<bool> alive_;
  std::map<int64_t, std::map<int32_t, double>> losses_;  // by step and micro-batch
  int64_t version_ = 0;
  int64_t ops_ = 0, spared_ = 0, taken_back_ = 0, copied_ = 0;
};

// A cluster that has ended its first step, and goes on with it where something of it is lost.
class Ended {
 public:
  // Runs the step. Nothing of what is sent is kept.
  Ended(TestCluster& cluster, const Plan& plan);

  // Values of this kind, and of this stage or any for -1, are nowhere any more.
  void lose(ValueKind kind, int32_t stage);
  // Runs what is left; with `refused` no device of the first stage takes ops of that kind, and all
  // are at a standstill.
  void resume(std::optional<OpKind> refused = std::nullopt);
  // What the runs of the newest step came to, by worker.
  const std::vector<ThreadRun>& runs() const { return runs_; }
  // What each worker has.
  const std::vector<Inventory>& stock() const { return stock_; }
  // Steps that were taken back for the newest run.
  size_t taken_back() const { return taken_back_; }

 private:
  void run();

  TestCluster& cluster_;
  const Plan plan_;
  std::optional<OpKind> refused_;
  std::vector<ThreadRun> runs_;
  std::vector<Inventory> stock_;
  size_t taken_back_ = 0;
};

}  // namespace tenuto
