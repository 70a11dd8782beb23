// From a job to its plan: what the job asks for, in the words of the planner.
#pragma once

#include <optional>

#include "base/result.h"
#include "base/watch.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// Layers that the job's model is partitioned by (gpt: embedding, blocks, head; mlp: hidden layers
// and the output layer).
int32_t layers_of(const Job& job);

// The plan of a run. The watch may end the search of an open order. Errors as make_plan's.
Result<Plan> make_job_plan(const Job& job, Watch* watch = nullptr);

// The plan of a run that has begun under `first`, once those who were absent have come: who holds a
// stage keeps it, and each of the absent takes its own place, or one that a worker has left that
// holds another stage than its place says.
//
// Requires: `first` is the job's plan
// Returns:  nothing when nobody is absent, or when nobody could come
std::optional<Plan> make_plan_of_all(const Job& job, const Plan& first);

}  // namespace tenuto
