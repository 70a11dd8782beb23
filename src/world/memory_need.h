// The least memory of a host that a job needs, so that a job that is too large is refused before it
// takes memory.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// How many numbers the optimizer keeps of each parameter beside its value.
double moments_of(const Job& job);

// Bytes of host memory that the workers need at least: for their processes; for each stage that
// they hold, the parameters and the optimizer's state; for each stage that they run, the summed
// gradient and the stash of the micro-batches that they hold at once (if the stage recomputes:
// their inputs, and one stash while a backward runs). A run takes more than that. An accelerator's
// memory is not counted.
//
// Requires: workers ascend
double memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers);

// Checks that this host has so much memory left. The workers must not have taken theirs yet.
//
// Errors: Exhausted/Call  with what is needed and what is there
Status check_memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers);

}  // namespace tenuto
