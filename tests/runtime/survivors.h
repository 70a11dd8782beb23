// Clusters on threads that lose workers in the middle of a step and run the remaining ops of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "adapt/salvage.h"
#include "test_cluster.h"
#include "trap.h"

namespace tenuto {

// A cluster that loses workers, with the version and the losses that its survivors have reached.
class Survivors {
 public:
  // The cluster must have been made from this plan. This object sets its wrappers; the caller sets
  // keep_bytes.
  Survivors(TestCluster& cluster, const Plan& plan);

  // Runs up to version `end` and kills the worker at its call number `at` to device or wire,
  // counted from the beginning of this run. True when that call was reached.
  bool run_and_lose(WorkerId victim, int64_t at, int64_t end);
  // Runs up to version `end` without losing a worker. The returned runs begin with the step that
  // version() named before the call; the runs of dead workers are empty.
  std::vector<ThreadRun> finish(int64_t end);

  // The version that all survivors have reached.
  int64_t version() const { return version_; }
  bool alive(int32_t worker) const { return alive_[static_cast<size_t>(worker)]; }
  // The losses of a step that the survivors know, by micro-batch.
  const std::map<int32_t, double>& losses(int64_t step) { return losses_[step]; }
  // Counts over all resumed steps: ops that were left to run; weight gradients not computed again
  // because survivors had them in their sums; optimizer steps undone; totals copied.
  int64_t ops() const { return ops_; }
  int64_t spared() const { return spared_; }
  int64_t taken_back() const { return taken_back_; }
  int64_t copied() const { return copied_; }

 private:
  // Cuts the victim off from the network at its chosen call.
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

// A cluster that has ended its first step, then loses some of the step's values and resumes it.
class Ended {
 public:
  // Runs the first step. Workers keep no sent messages.
  Ended(TestCluster& cluster, const Plan& plan);

  // Removes all values of this kind and stage (-1: any stage) from every worker's inventory.
  void lose(ValueKind kind, int32_t stage);
  // Runs the remaining ops. With `refused`, devices of the first stage refuse ops of that kind, so
  // that no worker can finish.
  void resume(std::optional<OpKind> refused = std::nullopt);
  // The results of the newest run, by worker.
  const std::vector<ThreadRun>& runs() const { return runs_; }
  // The inventory of each worker.
  const std::vector<Inventory>& stock() const { return stock_; }
  // Optimizer steps that were undone for the newest run.
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
