// Makes the plan of a job: turns the settings of the job into the planner's input.
#pragma once

#include <optional>

#include "base/result.h"
#include "base/watch.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// The plan of a run. The watch may end the search for an order that the job leaves open. Errors as
// make_plan's.
Result<Plan> make_job_plan(const Job& job, Watch* watch = nullptr);

// The plan of a run that has begun under `first`, once the absent workers have joined. A worker
// that holds a stage keeps it. An absent worker takes its own place; if a worker of another stage
// has moved there, the absent one takes a place that such a move has left free.
//
// Requires: `first` is the job's plan
// Returns:  nothing when no worker is absent, or when none could join
std::optional<Plan> make_plan_of_all(const Job& job, const Plan& first);

}  // namespace tenuto
