// What a worker reports of steps that are not finished, and its part of what is left of one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/plan.h"
#include "protocol/client.h"
#include "rehearsal/link_clock.h"
#include "runtime/compute.h"
#include "runtime/holding.h"
#include "runtime/optimizer.h"
#include "world/job.h"

namespace tenuto {

// What is left of a step, as this worker runs it.
struct WorkerRest {
  std::shared_ptr<const RestOfStep> told;  // with the plan of the rest
  RestPart part;
};

// The rest to run in this epoch, if it is not done yet; none when the step is run whole.
std::optional<WorkerRest> rest_of(const Told& told);

// True when what is left of a step of this plan can be run, if the device supports it: steps go on
// without the dead, some stage has more than one holder, and no stage steps ahead of the norm.
bool can_resume(const Job& job, const Plan& plan);

// What this worker, which is at `version`, holds of the two steps that are perhaps unfinished: of
// step `version` and of the one before. `losses`: of the step that was begun last; `before`: the
// summaries of steps that are reported.
std::vector<StepInventory> inventories_of(const Holding& holding, int64_t version, const Plan& plan,
                                          const std::vector<MicroLoss>& losses,
                                          const std::vector<StepSummary>& before);

}  // namespace tenuto
