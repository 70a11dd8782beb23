// From a job to its plan: what the job asks for, in the words of the planner.
#pragma once

#include "base/result.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// Layers that the job's model is partitioned by (gpt: embedding, blocks, head; mlp: hidden layers
// and the output layer).
int32_t layers_of(const Job& job);

// The plan of a run. Errors as make_plan's.
Result<Plan> make_job_plan(const Job& job);

}  // namespace tenuto
