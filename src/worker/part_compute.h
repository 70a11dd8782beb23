// One part of a replica in a run with server shards: computes the gradient of parameters that it is
// given. The other parts of the replica run the other stages of the same micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/mass.h"
#include "ir/plan.h"
#include "ir/sync_mode.h"
#include "ir/version.h"
#include "runtime/device.h"
#include "runtime/worker.h"
#include "world/job.h"

namespace tenuto {

// Which part it is.
struct PartPlace {
  StageId stage;
  ReplicaId replica;  // one for each pipeline of the job
};

// What a part runs on. All of it must outlive the part.
struct PartMachine {
  Transport* transport = nullptr;  // to the other parts, whose numbers are the workers of the plan
  Device* device = nullptr;        // holds the stage of the plan
  Mailbox* mailbox = nullptr;      // of the transport and the device, and of nothing else
  const Clock* clock = nullptr;
  int64_t epoch = 0;  // of the transport's hello
};

// The gradient of one iteration.
struct PartGradient {
  std::vector<float> sum;      // over the micro-batches, in the layout of GivenParameters
  Mass mass;                   // the micro-batches in it
  std::optional<double> loss;  // their mean, in nats per target; none: not the last stage

  // The mean over the micro-batches.
  std::vector<float> mean() const;
};

// The part. Calls come from one thread.
class PartCompute {
 public:
  // `plan` is that of one pipeline of the job, in which each worker holds one stage. Of its ops
  // only those of micro-batches are run: sums, norm and update are the business of server shards.
  //
  // Errors: Invalid/Call  another plan; a stage or a replica that is not there; a tied weight that
  //                       two stages share; a device without GivenParameters
  static Result<PartCompute> make(const Job& job, const Plan& plan, const PartPlace& place,
                                  const PartMachine& machine);

  // Computes the gradient of `parameters`, whatever version they are, together with the other
  // parts, which run the same iteration. The data and the dropout masks are those of the replica's
  // `iteration`. If a gradient is not finite, the sum is not finite either.
  //
  // After an error that reaches further than this call, connections to other parts may be closed,
  // as after a failed step (run_step).
  //
  // Shapes: `parameters` has as many elements as the device says (GivenParameters)
  // Errors: Invalid/Call for another number of elements; those of run_step
  Result<PartGradient> run(Iteration iteration, std::span<const float> parameters);

 private:
  PartCompute(Plan plan, StageId stage, WorkerId self, Mass mass, StepLimits limits,
              const PartMachine& machine);

  Plan plan_;
  StageId stage_;
  WorkerId self_;
  Mass mass_;  // of an iteration
  StepLimits limits_;
  int64_t epoch_;
  Device* device_;
  Runner runner_;
};

}  // namespace tenuto
