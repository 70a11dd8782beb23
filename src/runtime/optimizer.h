// Optimizer says which version of the parameters a device holds, and how its steps ended. The
// updates themselves are ops (compute.h). The runner asks it between two runs of a step, the worker
// between two steps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "world/micro_loss.h"

namespace tenuto {

// The outcome of a step. After a Step, norm and `finite` are those of the clip decision; after a
// StepAhead, they are those over all stages up to the worker's own.
struct StepOutcome {
  double gradient_norm = 0;       // before clipping
  double learning_rate = 0;       // that the step used
  bool finite = true;             // false: the step was skipped, parameters are unchanged
  std::vector<MicroLoss> losses;  // of the micro-batches whose last stage ran here, by micro
};

// The newest version that no clip decision can change any more, and what the clip decision on its
// step was.
struct Finality {
  int64_t version = 0;
  bool again = false;        // Validate has changed the parameters that the step under way began
                             // with: that step is void and has to be run again
  double gradient_norm = 0;  // global, before clipping
  bool finite = true;
  bool clipped = false;  // the gradients were scaled down, or are not finite
};

// The versions of a device's parameters. Calls come from the worker's thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // The outcome of the step that has just ended.
  virtual StepOutcome outcome() = 0;
  // Version of the parameters that is held: the number of steps taken since initialisation.
  virtual int64_t version() const = 0;
  // The newest final version and the clip decision on its step.
  virtual Finality finality() = 0;
  // A new epoch begins, in which all members start from the final version: no step is void any
  // more.
  virtual void start_over() = 0;
  // Takes the last Step back, exactly; Invalid when there is none to take back.
  virtual Status undo() = 0;
};

}  // namespace tenuto
