// The coordinator at work: hears the workers, their processes and the user's signals, asks decide,
// and does what it says, until the run has ended.
#pragma once

#include <string>

#include "app/launch.h"
#include "app/progress.h"
#include "app/run_directory.h"
#include "base/result.h"
#include "control/decide.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// What a run is made of. All of it must outlive the run.
struct RunInput {
  const Job* job = nullptr;
  const Plan* plan = nullptr;
  const RunDirectory* directory = nullptr;
  Rules rules;
  std::string token;
  std::string program;  // of the workers; empty = they are started by someone else
  Progress* progress = nullptr;
};

// Blocks the signals that a run answers (SIGINT, SIGTERM, SIGHUP: stop; SIGUSR1: checkpoint) for
// this thread and those it starts, and ignores those that would kill it (SIGPIPE, SIGXFSZ). Call
// before any thread is started.
void claim_signals();

// Runs it. Must be called from the process's main thread (see launch.h).
//
// Errors: what keeps a run from beginning: no port, no worker program
Result<Ending> coordinate(const RunInput& input);

}  // namespace tenuto
