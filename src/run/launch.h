// Starts and watches the worker processes of this host, and the hogs that take resources from them
// (worker/hog.h); none outlives the launcher.
//
// The kernel kills a worker when the thread that started it ends, so start() must be called from a
// thread that lives as long as the process. A worker also ends by itself when its conversation with
// the coordinator ends.
#pragma once

#include <cstdint>
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
  std::string coordinator;  // one address or several, see protocol/addresses.h
  std::string job, token;   // the token travels in the environment, never on the command line
  std::string tls;          // folder with certificates; empty = none
  std::string directory;    // for worker-N.log and hogs.log
  std::vector<WorkerId> workers;
  std::string hog_program = {};  // path of a worker's program that starts fast; empty = `program`
  std::string device = {};       // network.device, for hogs
  // Words behind `program` when that is a Python: the user's script and its arguments. The script
  // is told by its environment which worker it is (docs/bring-your-model.md); empty = no script.
  std::vector<std::string> script = {};
  int32_t worker_count = 0;       // of the run, on all hosts; 0 = `workers` are all
  int32_t first_incarnation = 0;  // of the processes that are started first
};

// A process that is to take resources of the host of a worker.
struct Hog {
  int32_t number = 0;  // names it; one that is started later ends an earlier one of its number
  WorkerId worker;
  int32_t threads = 0;              // that compute; 0 = it sends bytes to itself instead
  double megabytes_per_second = 0;  // of these bytes; 0 = as much as it can
  double for_ms = 0;                // how long; 0 = until it is ended
};

// The workers of one run on this host.
class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  // Kills and reaps the workers and hogs that are left.
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
  // Starts a hog beside a live worker: under the same words of coordinator.launch, so on the same
  // host, and for computing on the same processors.
  //
  // Errors: Invalid/Call  the worker has no process here; Invalid/Job as start()
  Status start_hog(const Hog& hog);
  // Ends the hog of that number, if there is one.
  void end_hog(int32_t number);
  // Why each of the hogs that have ended in trouble since the last call did so, in a sentence.
  std::vector<std::string> reap_hogs();
  // The number of live workers.
  int32_t alive() const;
  // Ends all hogs. Waits until all workers have ended, `limit` at most; kills those that have not.
  void finish(Duration limit);

 private:
  struct Child {
    WorkerId worker;
    int pid = -1;         // -1 = ended
    int descriptor = -1;  // pidfd
    std::string log;
    int64_t log_begin = 0;  // where this process's part of the log begins
  };
  // A hog that was started and may have ended.
  struct HogChild {
    Hog hog;
    int pid = -1;
    int64_t log_begin = 0;
  };
  Status start_one(WorkerId worker, int32_t incarnation);
  std::string hog_log() const { return settings_.directory + "/hogs.log"; }
  void end_all_hogs();
  LaunchSettings settings_;
  std::vector<Child> children_;  // one for each process that was ever started
  std::vector<HogChild> hogs_;   // those that have not been reaped
};

}  // namespace tenuto
