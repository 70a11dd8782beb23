// Whether a job can go on from a checkpoint.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/plan.h"
#include "run/checkpoint.h"
#include "world/job.h"

namespace tenuto {

// The checkpoint must be of the same model and optimizer, and both runs must be synchronous without
// servers, or neither. With server shards also the stages, the replicas and their micro-batches
// must be the same, because the decider's record counts the micro-batches of each replica, and with
// SGD whether there is momentum, because the states of the ranges have its moments. The number of
// servers may be another one, also none.
//
// `path`: of the checkpoint, for the sentence
// Errors: Invalid/Call  another setting, with both values; those of job_from_toml
Status check_resumable(const Job& job, const Manifest& manifest, const std::string& path);

// With server shards the stages must also have the same layers, because the states in the
// checkpoint are those of stages. Without, layers may be divided otherwise.
//
// `path`: of the checkpoint, for the sentence
// Errors: Invalid/Call  other layers, with both divisions
Status check_same_layers(const Plan& plan, const Manifest& manifest, const std::string& path);

}  // namespace tenuto
