// Computes the works of a part in a thread of its own, so that the loop of its process
// (parameter_server/run_host.h) goes on with messages and commands meanwhile.
//
// Idea:  the thread has one work at a time. When another one begins, the work before is stopped:
//        the decider has no use for it any more. What the thread computes with comes from outside,
//        as it is the device of a real run, or a function of a test.
//        A validation needs parameters of a certain moment. The thread makes it before the first
//        work whose parameters are due for it, and another work does not stop it.
//        A process that may use only so many cores pauses before a work (worker/pace.h). The pause
//        counts as a part of the iteration: it is what an iteration takes as long as the limit
//        holds.
// Right: tests/worker/part_trainer_test.cc
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/processor_use.h"
#include "base/result.h"
#include "ir/mass.h"
#include "parameter_server/run_host.h"
#include "worker/local_steps.h"
#include "worker/part_compute.h"
#include "worker/processor_watch.h"

namespace tenuto {

// What a trainer computes with, and whom it tells.
struct BackgroundTrainerSettings {
  // The gradient of these micro-batches for these parameters. Called in the trainer's thread. When
  // `stop` is set, it returns soon, with whatever it has.
  std::function<Result<PartGradient>(std::span<const servers::MicroRange> micros,
                                     std::span<const float> parameters,
                                     const std::atomic<bool>& stop)>
      compute;
  // Takes the local steps of works that have several, in the trainer's thread. Outlives the
  // trainer. Null = the trainer refuses such works.
  LocalSteps* local_steps = nullptr;
  // The loss of the replica's share of a validation for these parameters, in the same way. Empty =
  // the trainer makes no validations.
  std::function<Result<HeldOutLoss>(std::span<const float> parameters,
                                    const std::atomic<bool>& stop)>
      validate;
  // The number of steps after which parameters with this mass in them are to be validated, or a
  // number that was there before (Job::last_validation). Needed with `validate`.
  std::function<int64_t(Mass applied)> last_validation;
  // Lets a computation that waits look at its `stop`. Any thread.
  std::function<void()> wake_compute;
  // advance() has news. Called in the trainer's thread.
  std::function<void()> wake_host;
  // The trainer cannot go on. Called once at most, from advance().
  std::function<void(const Error& why)> fail;
  // What the kernel has counted of this process until now (base/processor_use.h). Called in the
  // trainer's thread. Empty = nobody asks the kernel.
  std::function<ProcessorUse()> look = {};
  Mass iteration;  // of the replica; 1 or more
  const Clock* clock = &monotonic_clock();
  // What all threads of this process have used of processors so far.
  std::function<Duration()> processor_time = process_cpu_time;
};

// The trainer. Calls come from one thread, that of run_host().
class BackgroundTrainer : public servers::PartTrainer {
 public:
  explicit BackgroundTrainer(BackgroundTrainerSettings settings);
  // Stops the computation, and waits until it has returned.
  ~BackgroundTrainer() override;
  BackgroundTrainer(const BackgroundTrainer&) = delete;
  BackgroundTrainer& operator=(const BackgroundTrainer&) = delete;

  // Shapes: `parameters` are fp32 numbers, range after range
  // Errors: Invalid/Call  a work with local steps, and the trainer takes none
  Status begin(const servers::Work& work, const std::vector<servers::Payload>& parameters,
               Duration run_begun) override;
  // The time of the iteration is that of the computation, of all local steps together; its transfer
  // is for run_host() to measure.
  std::optional<servers::ComputedIteration> advance(Duration now) override;
  // Never: it wakes its host.
  Duration due() const override { return Duration::max(); }
  void limit_cores(double cores) override;
  std::optional<servers::ValidatedReport> take_validated() override;

 private:
  // A work, from its begin until its end was taken.
  struct Task {
    servers::Work work;
    std::vector<servers::Payload> parameters;
    std::atomic<bool> stop = false;
  };

  void serve();
  std::shared_ptr<Task> next_task();
  Duration pause(const Task& task);
  bool validate(const Task& task);
  Result<PartGradient> gradient_of(const Task& task) const;
  Result<servers::ComputedIteration> compute(const Task& task, Duration paused);
  bool put_down(const std::shared_ptr<Task>& task, Result<servers::ComputedIteration> computed);
  void stop_task();
  std::optional<servers::ComputedIteration> take_computed();

  const BackgroundTrainerSettings settings_;
  std::atomic<bool> is_ending_ = false;  // stops a validation
  int64_t validated_step_ = 0;           // of the newest validation; the thread's own
  std::optional<ProcessorWatch> watch_;  // none: nobody asks the kernel; the thread's own
  servers::ProcessorTimes processor_;    // as of the last answer; the thread's own
  // Of the processor time, since the last pause; the thread's own.
  Duration used_{}, used_since_{};
  std::mutex mutex_;  // guards what follows; nothing is locked under it
  std::condition_variable changed_;
  std::shared_ptr<Task> task_;                          // the newest
  bool is_begun_ = false;                               // the thread has taken it
  std::optional<servers::ComputedIteration> computed_;  // of it
  std::deque<servers::ValidatedReport> validated_;      // not taken yet
  std::optional<Error> failure_;                        // not told yet
  double cores_ = 0;                                    // that may be used; 0 = no limit
  bool is_closed_ = false;
  std::thread thread_;  // the last member: it uses all others
};

}  // namespace tenuto
