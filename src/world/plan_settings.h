// The settings of a job that a plan file (parallel.plan) gives instead of the job file.
#pragma once

#include "base/result.h"
#include "ir/plan.h"
#include "world/load.h"

namespace tenuto {

// The plan of a job's plan file.
//
// Errors: Invalid/Call         no such file, or no plan in JSON, with line and column
//         others, as check()   the plan is refused
Result<Plan> read_plan_of_job(const Job& job);

// Takes from the plan file who holds what and everything that a plan decides: stages, pipelines and
// micros (or, if it is no grid of pipelines, the holders of each stage, one pipeline and all
// micro-batches), split_backward, dispatch, and, unless the job gives them, optimizer and
// all_reduce. Their origin is then "plan FILE". If parallel.plan is a flag, the plan replaces
// settings of the job file, as other flags do. Does nothing when the job has no plan file.
//
// Errors: read_plan_of_job's; Invalid/Call  the job gives a setting that the plan decides, and
//         gives it another value
Status take_plan(LoadedJob& loaded);

}  // namespace tenuto
