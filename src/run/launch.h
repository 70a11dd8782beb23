// Starts and watches the worker processes of this host; none outlives the launcher.
//
// The kernel kills a worker when the thread that started it ends, so start() must be called from a
// thread that lives as long as the process. A worker also ends by itself when its conversation with
// the coordinator ends.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "control/decide.h"

namespace tenuto {

// The settings with which workers are started.
struct LaunchSettings {
  std::string program;  // path of tenuto-worker
  // Words in front of the worker's command line: a program that becomes the worker (ip netns exec,
  // numactl, nice) or runs it (perf record). The worker's number replaces {worker} in them.
  std::vector<std::string> prefix;
  // Arguments to start another task than `run`; empty = `run`. {worker} is replaced in them, too.
  std::vector<std::string> task;
  std::string coordinator;  // host:port
  std::string job, token;   // the token travels in the environment, never on the command line
  std::string tls;          // folder with certificates; empty = none
  std::string directory;    // for worker-N.log
  std::vector<WorkerId> workers;
};

// The workers of one run on this host.
class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  // Kills and reaps the workers that are left.
  ~Launcher();

  // Starts the workers; on an error none is left.
  Status start(const LaunchSettings& settings);
  // One descriptor for each live worker, which becomes readable when that worker ends. When the
  // kernel has no more descriptors to give, some workers have none: so call reap() from time to
  // time as well.
  std::vector<int> descriptors() const;
  // The processes that have ended since the last call.
  std::vector<Exited> reap();
  // Starts a new process, with the settings of start(), for a worker whose process has ended or
  // that has never been started.
  //
  // Errors: Invalid/Call  its process lives, or no worker was started here; Invalid/Job as start()
  Status start_again(WorkerId worker);
  // Sends a signal to the process of a worker.
  //
  // Errors: Invalid/Call  no such process was started here, or it has ended
  Status signal(WorkerId worker, int number);
  // The number of live workers.
  int32_t alive() const;
  // Waits until all have ended, `limit` at most; kills those that have not.
  void finish(Duration limit);

 private:
  struct Child {
    WorkerId worker;
    int pid = -1;         // -1 = ended
    int descriptor = -1;  // pidfd
    std::string log;
    int64_t log_begin = 0;  // where this process's part of the log begins
  };
  Status start_one(WorkerId worker, int32_t incarnation);
  LaunchSettings settings_;
  std::vector<Child> children_;  // one for each process that was ever started
};

}  // namespace tenuto
