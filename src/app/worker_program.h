// Which program runs a worker, and where it finds torch.
//
// tenuto-worker holds the engine and is linked to the libtorch of a Python environment, which may
// have moved since; tenuto-worker-paced is the same without torch. A build without torch only has
// tenuto-worker, without torch.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "world/job.h"

namespace tenuto {

// Becomes the program at `path`, with these arguments. Returns only when that fails: the errno.
int execute(const std::string& path, const std::vector<std::string>& arguments);

// The program of workers with real devices. Sets LD_LIBRARY_PATH so that programs started from here
// find torch; so call it before there are threads.
//
// Errors: Invalid/Job  no such program, or no torch for it
Result<std::string> find_torch_worker();

// The program of workers with paced devices: the one without torch, if there is one.
//
// Errors: Invalid/Job  no such program
Result<std::string> find_paced_worker();

// Refuses the wire that connects only threads. `command` starts the processes: "tenuto train".
Status check_between_processes(const NetworkSettings& network, const std::string& command);

}  // namespace tenuto
