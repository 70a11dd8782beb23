// What the planner and the simulator are told of a job: times, bytes and links.
#pragma once

#include <vector>

#include "ir/plan.h"
#include "world/cluster.h"
#include "world/job.h"
#include "world/model.h"

namespace tenuto {

// Times of the workers of a pipeline in milliseconds, and the bytes of a stage.
struct WorkerTimes {
  std::vector<double> forward, backward_input, backward_weight;
  Bytes message, parameters;
};

// The times as a model: a stage's are those of its first layer. A worker's times are shared out
// evenly among its stages.
Model model_of(const Plan& plan, const WorkerTimes& times);

// The model of a run. Paced: the times of [device]. Otherwise the bytes of messages alone: how long
// ops last is measured while it runs.
Model job_model(const Job& job, const Plan& plan);

// The cluster of a run when all is well: equal workers, links as [network] gives them to a paced
// run, and as fast as can be for any other.
Cluster job_cluster(const Job& job);

}  // namespace tenuto
