// A Device is what a worker computes with: libtorch on any device (engine/), or the paced device
// (rehearsal/paced.h). The worker owns it, and gives each user only the interfaces that it needs:
// StageCompute and Optimizer to the step loop, StateStore to checkpoints and state transfers.
#pragma once

#include "ir/plan.h"
#include "runtime/compute.h"
#include "runtime/copies.h"
#include "runtime/given_parameters.h"
#include "runtime/growth.h"
#include "runtime/optimizer.h"
#include "runtime/state_store.h"

namespace tenuto {

// One device with the stages that it holds.
class Device : public StageCompute, public Optimizer, public StateStore {
 public:
  // True when the device implements keep(), drop() and resume().
  virtual bool resumes() const { return false; }
  // Copies values between the device's memory and the host's; nullptr: bytes() and allocate() give
  // the host's memory. The copies live as long as this device.
  virtual Copies* copies() { return nullptr; }
  // Says which parts of a gradient sum are complete while an op adds to it; nullptr: the device
  // does not say so for any stage. It lives as long as this device.
  virtual GradientGrowth* growth() { return nullptr; }
  // Computes gradients of parameters that it is given; nullptr: the device cannot do this. It lives
  // as long as this device.
  virtual GivenParameters* given_parameters() { return nullptr; }
  // From the next op on each op lasts 1 / speed times its own length, to rehearse a slow worker; 1
  // = unchanged. Requires speed in (0, 1].
  virtual void set_speed(double speed) = 0;
  // Holds exactly these stages of the plan from now on; called between two steps. A new stage has
  // initial parameters until its state is received, and the version number of the other stages. The
  // state of a stage that is not held any more is deleted.
  //
  // Requires: at least one stage; the version is final
  // Errors:   Invalid/Call  the device cannot do this
  virtual Status hold(const Plan& plan, const std::vector<StageId>& stages) {
    (void)plan, (void)stages;
    return invalid("this device holds the same stages for good");
  }
};

}  // namespace tenuto
