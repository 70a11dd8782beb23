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

// A checkpoint that a run is to evaluate, and its folder.
struct Evaluated {
  Manifest manifest;
  std::string path;
};

// The checkpoint of job.evaluate: that of the folder, or the newest one of the run. `run`: the
// folder of the run that evaluates it.
//
// Errors: Invalid/Call  the checkpoint lies in `run`, whose files are replaced
//         Invalid/Call  it is that of step 0
//         those of verify_checkpoint and find_checkpoint
Result<Evaluated> find_evaluated(const Job& job, const std::string& run);

// With server shards the stages must also have the same layers, because the states in the
// checkpoint are those of stages. Without, layers may be divided otherwise.
//
// `path`: of the checkpoint, for the sentence
// Errors: Invalid/Call  other layers, with both divisions
Status check_same_layers(const Plan& plan, const Manifest& manifest, const std::string& path);

}  // namespace tenuto
