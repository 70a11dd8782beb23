// Runs all workers of a plan on one thread: messages are copies, and sums are made in member order.
// So a result depends on nothing but the engine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "engine/engine.h"
#include "ir/plan.h"
#include "runtime/device.h"
#include "world/job.h"

namespace tenuto {

// The results of a step, over all workers.
struct DrivenStep {
  std::map<int32_t, double> losses;   // by micro
  std::vector<StepOutcome> outcomes;  // by worker
};

// The cluster. A CHECK fails if an op fails.
class Driver {
 public:
  explicit Driver(const Job& job, const EngineOptions& options = {});
  // Runs one step, or its held-out pass.
  DrivenStep run(int64_t step, bool evaluation = false);
  // Runs one compute op at one worker.
  void run_op(size_t worker, const Op& op);
  // Saves one shard for each stage into `folder`. Returns their paths.
  std::vector<std::string> save(const std::string& folder);
  // The engine of one worker.
  Device& engine(int32_t worker) { return *seats_[static_cast<size_t>(worker)].compute; }
  // Number of workers.
  int32_t worker_count() const { return static_cast<int32_t>(seats_.size()); }
  // The plan that is run.
  const Plan& plan() const { return plan_; }

 private:
  struct Seat {
    std::unique_ptr<QueueMailbox> mailbox;
    std::unique_ptr<Device> compute;
    std::vector<StageId> stages;
  };
  class Round;
  Job job_;
  Plan plan_;
  std::vector<Seat> seats_;
};

}  // namespace tenuto
