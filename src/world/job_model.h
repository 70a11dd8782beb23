// Times and bytes of a job's layers, for the planner, the simulator and paced devices.
#pragma once

#include <vector>

#include "ir/plan.h"
#include "world/job.h"
#include "world/model.h"

namespace tenuto {

// The times of a pipeline's workers in milliseconds, one for each worker; the bytes of a message;
// and the bytes of a stage's parameters.
struct WorkerTimes {
  std::vector<double> forward, backward_input, backward_weight;
  Bytes message, parameters;
};

// Makes a model of the times: a worker's times are divided evenly among its stages, and the first
// layer of each stage gets all times of the stage.
Model model_of(const Plan& plan, const WorkerTimes& times);

// Whether the job's devices say which parts of a gradient sum are complete while an op adds to it.
// On an accelerator, the host does not know it; sums in fixed point are made when an op ends; ops
// of paced devices end at one moment.
bool sums_grow(const Job& job);

// The model of a run. For paced devices it has the times of device.profile at parallel.micro_rows
// rows, or those of [device]. For other devices it has bytes only: op times are measured during the
// run.
//
// Requires: with a profile, the plan has its layers
Model job_model(const Job& job, const Plan& plan);

}  // namespace tenuto
