// The launcher at work: it starts a coordinator in a process of its own and the workers of this
// host, and a new coordinator whenever one dies, while the workers train on.
//
// It only knows which processes it has started and which have ended, so little in it can fail; when
// it dies, all processes that it has started die with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/plan.h"
#include "run/notice.h"
#include "world/job.h"

namespace tenuto {

// The input of a new coordinator.
struct CoordinatorStart {
  const Post* launcher = nullptr;  // the connection with the launcher
  std::string listen;              // host:port, the same for all coordinators of a run
  int before = 0;  // process id of the previous coordinator, which is dead; 0 = none
};

// The run to supervise. All of it must outlive the run.
struct SuperviseInput {
  const Job* job = nullptr;
  std::string directory;  // of the run
  std::string program;    // of the workers; empty = they are started by someone else
  std::string token;
  std::vector<WorkerId> workers;         // to be started
  std::string hog_program = {};          // see LaunchSettings
  std::vector<std::string> script = {};  // see LaunchSettings
  // Runs a coordinator to its end, in a forked process; returns the exit code of the run. If it has
  // not sent Leaving by then, it counts as dead and gets a successor.
  std::function<int(const CoordinatorStart&)> coordinate;
};

// Blocks the signals that a run answers (SIGINT, SIGTERM, SIGHUP: stop; SIGUSR1: checkpoint) for
// this thread and those it starts, and ignores those that would kill it (SIGPIPE, SIGXFSZ). Call
// before any thread is started.
void claim_signals();

// A descriptor from which the signals that are stopped by claim_signals() can be read, as
// signalfd_siginfo; reading it does not wait. The caller closes it.
int open_claimed_signals();

// Supervises the run to its end. Returns the run's exit code; if no coordinator has said how the
// run ended, this is 75, with a sentence. A coordinator that stalls for long is killed. If the
// store is in memory, or the run has server shards, the first death of a coordinator ends the run;
// otherwise the run ends after several deaths with no step committed between them.
//
// Requires: the process's main thread and no other one, see launch.h; claimed signals
// Errors: the run cannot begin: no coordinator or worker can be started
Result<Ending> supervise(const SuperviseInput& input);

}  // namespace tenuto
