// One worker's step: the loop that walks a list, starts ops on compute, wire and reduction, and
// waits at its mailbox, nowhere else.
//
// The loop owns the Walk and asks it what can start. Compute ops go to StageCompute, one at a time.
// The Transport reads and writes messages in the device's memory; receives are posted early. A
// Reduce runs as a dataflow of messages (reduction.h). Each report that comes in ends one call, and
// the loop starts again from what the Walk then says.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "ir/plan.h"
#include "runtime/compute.h"
#include "runtime/growth.h"
#include "runtime/holding.h"
#include "runtime/list_table.h"
#include "runtime/optimizer.h"
#include "runtime/step_observer.h"
#include "runtime/step_pacer.h"
#include "runtime/tag.h"
#include "transport/transport.h"
#include "world/event.h"

namespace tenuto {

// What a worker runs on. All of it must outlive the steps.
struct Machine {
  Transport* transport = nullptr;
  StageCompute* compute = nullptr;
  Optimizer* optimizer = nullptr;  // of the same device
  Mailbox* mailbox = nullptr;
  const Clock* clock = nullptr;
  Pacer* pacer = nullptr;  // gives ops other times than they really have; null: they keep theirs
  // Of the same device. If it is here and the ops keep their times, all-reduces begin while the
  // last backward of their stage still computes.
  GradientGrowth* growth = nullptr;
};

// How long a failed step waits for what is under way, unless told otherwise.
inline constexpr Duration kRetireLimit = std::chrono::seconds(5);

// How long a step waits.
struct StepLimits {
  Duration silence{};              // if no call ends for so long, the step fails
  Duration retire = kRetireLimit;  // after a failure: for the calls under way, see run_step
};

// What a step keeps in case another worker is lost; after such a loss also the rest of the step,
// which is to be run.
struct StepRecovery {
  // Keeps account of what the worker has of the step; values that it sends are kept. Null: nothing
  // is kept. Must be null in a held-out pass, and if messages leave through the device's queue
  // (rehearsal/queued_step.h).
  Holding* holding = nullptr;
  // The plan is what is left of a step, and this is the worker's part of it; null: a whole step.
  const RestPart* rest = nullptr;
  int64_t attempt = -1;  // the interrupted attempt that left `rest`: see Holding
};

// One step's circumstances.
struct StepInput {
  const Plan* plan = nullptr;
  bool evaluation = false;  // run plan->evaluation instead of plan->schedule
  WorkerId self;
  int64_t epoch = 0, step = 0;
  StepLimits limits;
  StepObserver* observer = nullptr;  // null: nobody watches, and the step is committed
  StepRecovery recovery;
};

// Runs one step: StageCompute::begin(step), then the list to its end. The events are in the order
// in which ops finished. Reports with tickets of other callers or of earlier steps go to
// StepObserver::other.
//
// After a failure nothing is left under way: every peer with an open call is dropped
// (Transport::drop, which ends receives and sends alike and which that peer sees as a loss), and a
// compute op is waited for, at most limits.retire in all. If something is still under way then, its
// memory is in use: the reach of the error is Job, and the process must end.
//
// Errors: Cancelled/Call       StepObserver::standing said abandon
//         Disconnected/Worker  a peer was lost with which this worker still had messages; the
//                              sentence names worker, stage, step, peer and op
//         Timeout/Worker       no op completed within the limit; the sentence shows the list with
//                              an arrow at each waiting op, what it misses and from whom
//         Invalid/Job          the plan's list cannot be run by this worker or with this pacer
//         others as compute and wire report them
Result<std::vector<Event>> run_step(const StepInput& input, const Machine& machine);

// A ticket that no other call of this process has: for connects and other calls around the steps.
Ticket fresh_ticket();

// run_step with a memory: keeps the tables of the plan and the scratch of reductions from step to
// step. One per worker thread.
//
// A step that turns out to be void (StageCompute) is run to its end, for the sake of its messages,
// and then again. All workers find the same steps void, so they count the runs of an epoch alike;
// messages are tagged by this number, and those of two runs of a step are never mixed.
class Runner {
 public:
  explicit Runner(const Machine& machine) : machine_(machine) {}
  // See the free run_step. The events are those of the last run.
  Result<std::vector<Event>> run_step(const StepInput& input);
  // Makes version `input.step` final ahead of step `input.step`: runs the ops of its list that
  // validate the step before, which the step itself then leaves out. Other workers may run theirs
  // within the step. Does nothing if the plan's steps wait for their norm. Errors as run_step.
  Status make_final(const StepInput& input);
  // How many runs of steps were void in the present epoch.
  int64_t voids() const { return voids_; }
  // Sets the count of void runs of `epoch`, for a worker that joins after its beginning, so that it
  // counts runs as the others do.
  void join(int64_t epoch, int64_t voids);

 private:
  Result<std::vector<Event>> run_once(const StepInput& input, const Schedule& schedule,
                                      const ListTable& table, bool validated);
  void count_from(int64_t epoch);

  Machine machine_;
  int64_t epoch_ = -1;
  int64_t voids_ = 0;       // void runs of this epoch
  int64_t validated_ = -1;  // the step whose validation has been run ahead of it

  std::optional<ListTable> training_, evaluation_;
  std::vector<std::vector<int64_t>> scratch_;
};

}  // namespace tenuto
