// What a worker of a job runs on: its device and its transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "ir/plan.h"
#include "runtime/compute.h"
#include "runtime/link_clock.h"
#include "runtime/paced.h"
#include "runtime/staged.h"
#include "transport/faulty.h"
#include "transport/transport.h"
#include "world/job.h"

namespace tenuto {

// A worker's device.
struct WorkerCompute {
  std::unique_ptr<Compute> compute;
  PacedCompute* paced = nullptr;     // the same, when it is a paced device
  std::unique_ptr<LinkClock> links;  // paced on the nominal clock
};

// The device that the job asks for, holding `stages`.
//
// Errors: Invalid/Job  no such device in this build or on this machine, or as the engine says
Result<WorkerCompute> make_compute(const Job& job, const Plan& plan,
                                   const std::vector<StageId>& stages, Mailbox& mailbox);

// A worker's transport.
struct WorkerWire {
  std::unique_ptr<Transport> transport;
  FaultyTransport* faulty = nullptr;  // the same or below it, when it rehearses links
  StagedTransport* staged = nullptr;  // the same, when the device has memory of its own
  PathRule paths;                     // then: the rule that chooses the path of messages
};

// The transport that the job asks for: UCX; inside a faulty one where links are rehearsed on the
// real clock ([network] latency_ms and megabytes_per_second of paced devices, [[fault]] of all);
// that inside a staged one where the device has memory of its own.
//
// Errors: Invalid/Job  network.path = "direct" and UCX cannot reach the device's memory
Result<WorkerWire> make_worker_wire(const Job& job, const Hello& hello, Mailbox& mailbox);

// What `tenuto sample` is asked for.
struct SampleRequest {
  std::string run;  // its folder
  std::string prompt;
  int64_t bytes = 500;
  double temperature = 0.8;
  int64_t seed = 1;
  int64_t step = -1;  // of the checkpoint; -1 = the newest
};

// Prints text from the model of a run on stdout.
//
// Errors: as find_checkpoint and the engine say; Invalid/Call without torch
Status print_sample(const SampleRequest& request);

// Version of torch and the devices it can use; a sentence when this build has none.
std::string device_description();

}  // namespace tenuto
