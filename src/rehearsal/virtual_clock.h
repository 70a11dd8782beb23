// The virtual clock of a worker: makes the pacer of each run of a step.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/plan.h"
#include "rehearsal/link_clock.h"
#include "runtime/step_pacer.h"

namespace tenuto {

// Messages take the time that `links` says. Blocking messages leave through the device's queue,
// except in a held-out pass.
class VirtualClock : public Pacer {
 public:
  // `links` must outlive the clock.
  explicit VirtualClock(LinkClock& links) : links_(links) {}
  // Errors: Invalid/Job  messages block, and the plan has dispatch ready or no order of the queue
  Result<std::unique_ptr<StepPacer>> pace(StepState& state) override;

 private:
  Status find_order(const StepState& state);

  LinkClock& links_;
  // The order of the device's queue, and the plan that it is for.
  std::vector<int32_t> order_;
  std::optional<Plan> ordered_;
};

}  // namespace tenuto
