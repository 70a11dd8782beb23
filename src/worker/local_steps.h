// Local steps: what a part of a replica computes for a work that has several of them.
//
// Idea:  the part reads the parameters once, and then takes its steps by itself: each with the mean
//        gradient of one iteration's micro-batches, with an optimizer of its own, and with the
//        whole learning rate, as if its gradient were that of all replicas. It offers how far the
//        steps have moved the parameters. Keepers take the mean of such changes by an outer step
//        (parameter_server/mass_store.h). An iteration is clipped by the norm of its own gradient.
// Limit: the optimizer's moments go on from work to work, and are lost with the process. A work
//        that is given up in the middle has changed them. Nobody else has them, and they are in no
//        checkpoint.
// Right: tests/worker/local_steps_test.cc: they are steps of a MassStore, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/mass.h"
#include "parameter_server/mass_store.h"
#include "sync/servers/message.h"
#include "sync/trial_step.h"
#include "worker/part_compute.h"

namespace tenuto {

// The micro-batches of each local step of the work, in their order. All steps have as many.
//
// Errors: Invalid/Call  micro-batches that cannot be divided evenly among the local steps, or none
Result<std::vector<std::vector<servers::MicroRange>>> micros_of_steps(const servers::Work& work);

// The local steps of one part, with their optimizer. Calls come from one thread at a time.
class LocalSteps {
 public:
  // The gradient of some micro-batches for these parameters.
  using Compute = std::function<Result<PartGradient>(std::span<const servers::MicroRange> micros,
                                                     std::span<const float> parameters)>;

  // `settings`: of the job's optimizer for the whole stage. The moments take memory when the first
  // local steps are taken.
  explicit LocalSteps(const servers::MassStoreSettings& settings);

  // Takes the steps of the work. While a replica takes one, all replicas together are taken to
  // advance by the full mass, so step i has the learning rate of i steps after the parameters.
  //
  // Shapes: `parameters` are those of the whole stage, as many in each call
  // Returns: the change, old - new, times the work's mass, in the place of the gradients' sum; and
  //          the mean loss of all micro-batches
  // Errors: those of micros_of_steps and `compute`. Steps that were taken before stay in the
  //         moments.
  Result<PartGradient> run(const servers::Work& work, std::span<const float> parameters,
                           const Compute& compute);

 private:
  void take(std::span<float> parameters, std::span<const float> sum, Mass mass, Mass applied);

  StepSetting setting_;
  Mass full_;                      // of one iteration of all replicas
  std::optional<TrialStep> step_;  // none: no local step was taken yet
  Mass step_mass_;                 // of the step before
  int64_t taken_ = 0;              // local steps so far
};

}  // namespace tenuto
