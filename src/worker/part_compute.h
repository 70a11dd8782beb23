// One part of a replica in a run with server shards: computes the gradient of parameters that it is
// given. The other parts of the replica run the other stages of the same micro-batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/mass.h"
#include "ir/plan.h"
#include "ir/sync_mode.h"
#include "ir/version.h"
#include "runtime/device.h"
#include "runtime/worker.h"
#include "sync/servers/message.h"
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

// The gradient of some micro-batches.
struct PartGradient {
  std::vector<float> sum;      // over the micro-batches, in the layout of GivenParameters
  Mass mass;                   // the micro-batches in it
  std::optional<double> loss;  // their mean, in nats per target; none: not the last stage

  // The mean over the micro-batches.
  std::vector<float> mean() const;
};

// The held-out loss of some micro-batches.
struct HeldOutLoss {
  double sum = 0;      // over the micro-batches, in nats per target
  int64_t micros = 0;  // none: the part has none of them, or is not the last stage
  std::optional<double> accuracy_sum = {};  // over the same; none: the model does not know it
};

// The part. Calls come from one thread.
class PartCompute {
 public:
  // `plan` is that of one pipeline of the job, in which each worker holds one stage. Of its ops
  // only those of micro-batches are run: sums, norm and update are the business of server shards.
  // Of its held-out pass, the replicas have the micro-batches in turn.
  //
  // Errors: Invalid/Call  another plan; a stage or a replica that is not there; a tied weight that
  //                       two stages share; a device without GivenParameters
  static Result<PartCompute> make(const Job& job, const Plan& plan, const PartPlace& place,
                                  const PartMachine& machine);

  // Computes the sum of the gradients of these micro-batches for `parameters`, whatever version
  // they are, together with the other parts, which run the same list. Micro-batch k of a stream is
  // position k % micros of iteration k / micros of that replica, with the data and the dropout
  // masks that it has there, whichever replica computes it. Those of one iteration of one replica
  // are summed by one pass over the device, in the order of the plan. The sums of the passes are
  // added in the order in which the list first names them. If a gradient is not finite, the sum is
  // not finite either.
  //
  // `stop`: when another thread sets it and posts a Done without ticket and peer to the part's
  // mailbox, the call returns as soon as the op under way has ended. The other parts do not know of
  // that, and lose their messages with this one. Null: nobody stops the call.
  //
  // After an error that reaches further than this call, connections to other parts may be closed,
  // as after a failed step (run_step).
  //
  // Shapes: `parameters` has as many elements as the device says (GivenParameters)
  // Errors: Invalid/Call    another number of elements; no micro-batch, one that the job does not
  //                         have, or one that is named twice
  //         Cancelled/Call  `stop` is set
  //         those of run_step
  Result<PartGradient> run(std::span<const servers::MicroRange> micros,
                           std::span<const float> parameters,
                           const std::atomic<bool>* stop = nullptr);
  // The same for all micro-batches of an iteration of the part's own replica.
  Result<PartGradient> run(Iteration iteration, std::span<const float> parameters);

  // Computes the loss of the replica's micro-batches of the held-out pass for `parameters`,
  // together with the other parts. All replicas together have each one of the pass once.
  //
  // `stop`, shapes and what holds after an error are as for run().
  // Errors: Invalid/Call    another number of elements
  //         Cancelled/Call  `stop` is set
  //         those of run_step
  Result<HeldOutLoss> validate(std::span<const float> parameters,
                               const std::atomic<bool>* stop = nullptr);

  // The stages to whose part the connection was lost in a call, ascending.
  std::vector<StageId> lost_stages() const;

 private:
  // Micro-batches of one iteration of one replica.
  struct Pass {
    ReplicaId stream;
    Iteration iteration;
    std::vector<int64_t> positions;  // in the iteration
  };

  PartCompute(Plan plan, const PartPlace& place, int32_t replicas, StepLimits limits,
              const PartMachine& machine);
  Result<std::vector<Pass>> passes_of(std::span<const servers::MicroRange> micros) const;
  Plan plan_of(const Pass& pass) const;
  StepInput input_of(const Plan& plan) const;
  Status run_pass(const Pass& pass, const std::atomic<bool>* stop);

  // Of all micro-batches of an iteration, numbered by their positions; and the held-out pass of
  // this replica.
  Plan plan_;
  PartPlace place_;
  WorkerId self_;
  int32_t replicas_;
  int64_t micros_;  // of an iteration
  StepLimits limits_;
  int64_t epoch_;
  Device* device_;
  Runner runner_;
  std::set<WorkerId> lost_;  // workers of the plan
};

}  // namespace tenuto
