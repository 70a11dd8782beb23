// What a job needs of a host's memory at least, so that a job that is too large is refused before
// its memory is taken.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// Bytes of host memory that the workers need for certain: their processes; of each stage that they
// hold the parameters and what the optimizer keeps of them; of each stage that they run the summed
// gradient and what one micro-batch leaves for its backward. A run takes more than that. An
// accelerator's memory is not counted.
//
// Requires: workers ascend
double memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers);

// Whether this host has so much memory left for the workers, of which it has none yet.
//
// Errors: Exhausted/Call  with what is needed and what is there
Status check_memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers);

}  // namespace tenuto
