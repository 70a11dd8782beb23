// A worker of a job with server shards (Job::is_served): a part of a replica, or a server that
// keeps parameters. In a job without servers each part also keeps ranges of its stage, and one of
// them decides.
//
// The workers of a fresh plan are the parts, and the servers come after them (Job::process_count).
// The coordinator is the host of the run (parameter_server/server_run.h). The worker makes its
// device, is told which process of the run it is, and is then led by the host's commands.
#pragma once

#include "worker/conversation.h"
#include "worker/machine.h"
#include "worker/worker_run.h"
#include "world/job.h"

namespace tenuto {

// Runs the worker to the end of its part, as run_worker() does.
//
// Requires: a conversation that has begun and in which an instruction has come
WorkerEnd run_served_worker(const WorkerSettings& settings, const RealDevice& device,
                            const Job& job, Conversation& conversation);

}  // namespace tenuto
