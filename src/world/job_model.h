// A job as the planner, the simulator and its paced devices see it: times and bytes.
#pragma once

#include <vector>

#include "ir/plan.h"
#include "world/job.h"
#include "world/model.h"

namespace tenuto {

// Times of the workers of a pipeline in milliseconds, one for each worker; and the bytes of a
// message and of the parameters of a stage.
struct WorkerTimes {
  std::vector<double> forward, backward_input, backward_weight;
  Bytes message, parameters;
};

// The times as a model: a stage's times are given to its first layer. A worker's times are divided
// evenly among its stages.
Model model_of(const Plan& plan, const WorkerTimes& times);

// The model of a run. Paced devices: that of device.profile at parallel.micro_rows rows, or with
// the times of [device]. Others: with the bytes alone, since op times are measured while the run
// goes on.
//
// Requires: with a profile, the plan has its layers
Model job_model(const Job& job, const Plan& plan);

}  // namespace tenuto
