// Runs the coordinator of a run with server shards (Job::is_served: they live in servers, or in the
// processes of the replicas) until the run has ended: the host of the run
// (parameter_server/server_run.h) between the workers' reports, the launcher and the person at the
// command line.
//
// The coordinator keeps no state that outlives it. If it dies, the run ends, and is resumed from
// its newest checkpoint.
#pragma once

#include "base/result.h"
#include "control/store.h"
#include "run/run_input.h"

namespace tenuto {

// Runs the run from its beginning to its end. Before this returns, it sends Leaving to the
// launcher.
//
// Requires: a job that is served; the plan is that of one replica
// Errors: the coordinator cannot begin: no port, no address file
Result<Ending> coordinate_servers(const RunInput& input);

}  // namespace tenuto
