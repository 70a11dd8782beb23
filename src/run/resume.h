// Whether a job can go on from a checkpoint.
#pragma once

#include <string>

#include "base/result.h"
#include "run/checkpoint.h"
#include "world/job.h"

namespace tenuto {

// The checkpoint must be of the same model, optimizer and architecture. With server shards also the
// ranges, the replicas and the mass of a step must be the same, because its files are of ranges and
// the decider's record counts micro-batches of each replica.
//
// `path`: of the checkpoint, for the sentence
// Errors: Invalid/Call  another setting, with both values; those of job_from_toml
Status check_resumable(const Job& job, const Manifest& manifest, const std::string& path);

}  // namespace tenuto
