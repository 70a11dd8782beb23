// A worker from its first report to its last: connects, holds a stage, runs steps until the
// coordinator ends its part.
#pragma once

#include <cstdint>
#include <string>

#include "base/id.h"
#include "base/result.h"
#include "worker/machine.h"

namespace tenuto {

// The settings with which a worker is started.
struct WorkerSettings {
  std::string coordinator;  // one address or several, see protocol/addresses.h
  std::string job, token;
  std::string tls;  // folder with certificates; empty = none
  WorkerId self;
  int32_t incarnation = 0;
};

// How a process's part in a run has ended.
struct WorkerEnd {
  // 0: the job is done. 75: a new process may take part later, in this run or when it goes on. 1:
  // neither this run nor this worker can go on.
  int exit_code = 0;
  std::string sentence;   // why; empty = the job is done
  bool left_out = false;  // the run goes on without this process, and may accept a new one
};

// Runs the worker to the end of its part. When the conversation with the coordinator is over, this
// process exits after a second at most, even in the middle of a long op; its exit code is as in
// WorkerEnd.
WorkerEnd run_worker(const WorkerSettings& settings, RealDevice device);

}  // namespace tenuto
