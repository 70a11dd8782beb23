// What a worker of a job runs on: its device and its transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/tls.h"
#include "ir/plan.h"
#include "rehearsal/link_clock.h"
#include "rehearsal/paced.h"
#include "runtime/device.h"
#include "runtime/memory_count.h"
#include "runtime/staged.h"
#include "runtime/step_pacer.h"
#include "transport/faulty.h"
#include "transport/pace.h"
#include "transport/process/process_wire.h"
#include "transport/transport.h"
#include "world/job.h"
#include "world/micro_loss.h"

namespace tenuto {

// A worker's device.
struct WorkerCompute {
  std::unique_ptr<Device> compute;
  PacedDevice* paced = nullptr;      // the same, when it is a paced device
  std::unique_ptr<LinkClock> links;  // null unless it is paced on the virtual clock
  std::unique_ptr<Pacer> pacer;      // null unless it is paced on the virtual clock
};

// What a worker knows of a training step when it has done it.
struct StepNews {
  int64_t step = 0;
  std::vector<MicroLoss> losses;  // of the micro-batches whose last stage this worker ran
  // Global, before clipping. None: the step was taken ahead of the norm, which is not known yet.
  std::optional<double> gradient_norm;
  double learning_rate = 0;
};

// How real devices are made. The program supplies this, so that a worker with a paced device needs
// no torch.
struct RealDevice {
  // Makes the device of the job, holding `stages`.
  std::function<Result<std::unique_ptr<Device>>(
      const Job& job, const Plan& plan, const std::vector<StageId>& stages, Mailbox& mailbox)>
      make;
  // Lets the calling thread reach the device's memory.
  std::function<void(const DeviceSettings& device)> bind_thread;
  // Returns the counter of tensor memory on the device (engine/engine.h); empty = there is none.
  std::function<MemoryCount*(const DeviceSettings& device)> memory = nullptr;
  // Called by the worker's thread after each training step; empty = nobody wants to know. A step
  // that is done again after a failure is told of again.
  std::function<void(const StepNews& news)> stepped = nullptr;
};

// Makes the device of worker `self` that the job asks for; it holds `stages`.
//
// Errors: Invalid/Job  no such device in this build or on this machine, or as `real` says
Result<WorkerCompute> make_compute(const Job& job, const Plan& plan, WorkerId self,
                                   const std::vector<StageId>& stages, Mailbox& mailbox,
                                   const RealDevice& real);

// A worker's transport.
struct WorkerWire {
  std::unique_ptr<Transport> transport;
  FaultyTransport* faulty = nullptr;  // the same or inside it; null: the job needs none
  StagedTransport* staged = nullptr;  // the same, when the device has memory of its own
  PathRule paths;                     // then: the rule that chooses the path of messages
};

// What a worker's process knows and its job does not say.
struct WorkerHost {
  std::shared_ptr<const Tls> tls;  // this host's certificates, for network.tls; null = none
  // How many workers of the job run on this host, see TcpSettings; null = one.
  std::shared_ptr<const std::atomic<int32_t>> workers;
  // How fast the wire sends, for a caller that changes it; null = nobody does.
  std::shared_ptr<SendPace> pace = {};
};

// The wire that make_worker_wire makes for the job on a host like this one: Tcp or Ucx.
WireChoice wire_of(const Job& job);

// Makes the transport that the job asks for (network.wire). A faulty transport wraps it if links
// are emulated on the real clock or a partition is injected. Links are emulated by latency_ms, by
// megabytes_per_second and by cluster in [network], for paced devices only, and by [[fault]], for
// all devices. If the device has memory of its own, a staged transport wraps this one, so that
// messages can go through the host's memory.
//
// Errors: Invalid/Job  network.path = "direct" and no wire of this job reaches the device's memory;
//                      network.tls and the host has no certificates
Result<WorkerWire> make_worker_wire(const Job& job, const Hello& hello, Mailbox& mailbox,
                                    const RealDevice& real, const WorkerHost& host);

}  // namespace tenuto
