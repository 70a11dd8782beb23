// A worker from its first report to its last: connects, holds a stage, runs steps until control
// says that it is over.
#pragma once

#include <cstdint>
#include <string>

#include "base/id.h"
#include "base/result.h"

namespace tenuto {

// What a worker is started with.
struct WorkerSettings {
  std::string coordinator;  // host:port
  std::string job, token;
  std::string tls;  // folder with certificates; empty = none
  WorkerId self;
  int32_t incarnation = 0;
};

// Runs the worker; returns when it has been told to go.
//
// Errors: Disconnected/Job  no coordinator, or it has gone or refused this worker
Status run_worker(const WorkerSettings& settings);

}  // namespace tenuto
