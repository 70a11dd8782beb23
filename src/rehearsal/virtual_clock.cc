#include "rehearsal/virtual_clock.h"

#include <utility>

#include "base/text.h"
#include "ir/device_queue.h"
#include "rehearsal/queued_step.h"

namespace tenuto {

Result<std::unique_ptr<StepPacer>> VirtualClock::pace(StepState& state) {
  using Made = std::unique_ptr<StepPacer>;
  if (!links_.blocking() || state.input.evaluation) {
    return Made(std::make_unique<ClockedStep>(state, links_));
  }
  if (const Status found = find_order(state); !found.ok()) return found.error();
  return Made(std::make_unique<QueuedStep>(state, links_, order_));
}

Status VirtualClock::find_order(const StepState& state) {
  const Plan& plan = *state.input.plan;
  const WorkerId self = state.input.self;
  if (ordered_ && *ordered_ == plan) return ok();
  if (plan.dispatch != Dispatch::Listed) {
    return Error{Code::Invalid, Reach::Job,
                 cat("worker ", self,
                     ": blocking messages leave in list order, and the plan has dispatch ready: "
                     "take listed, or network.send = \"offloaded\"")};
  }
  auto orders = device_orders(plan, plan.schedule);
  if (!orders.ok()) {
    return Error{Code::Invalid, Reach::Job, cat("worker ", self, ": ", orders.error().message)};
  }
  order_ = std::move(orders.value()[static_cast<size_t>(self.value)]);
  ordered_ = plan;
  return ok();
}

}  // namespace tenuto
