// The workers of one host in a run whose coordinator somebody else starts, perhaps on another host:
// starts them, and starts again those that die, until the job is done.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "run/launch.h"

namespace tenuto {

// Starts the workers and stays until none of them is left to come back. A worker that was killed,
// or says that another process may succeed (exit code 75), is started again, each at most
// `restarts` times with the pauses of Restarts. SIGINT, SIGTERM and SIGHUP kill all of them, and
// the run goes on without this host.
//
// Returns: an exit code: 0 when the job is done, 128 + the number of the signal after a signal,
//          else that of a worker that has failed, else 75
//
// Requires: the process's main thread and no other one, see launch.h; claimed signals
// Errors: those of Launcher::start
Result<int> run_host_workers(const LaunchSettings& settings, int32_t restarts);

}  // namespace tenuto
