// One worker's measurements of one step, small enough to be sent every step: how long messages took
// to arrive, how long ops lasted, and what the kernel knows of its network and its processor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/processor_use.h"
#include "base/unit.h"
#include "ir/op.h"
#include "world/event.h"

namespace tenuto {

// The messages that came over one link in one direction during one step. A delay is the arrival on
// the receiver's clock minus the stamp on the sender's clock, so it contains the difference of the
// two clocks and may be negative. Use only the sum of both directions, or differences within one
// direction.
struct LinkSample {
  WorkerId from, to;
  int32_t messages = 0;
  Duration least{}, median{}, upper{};   // of the delays; upper: 75 % are below
  Bytes smallest, largest;               // of the messages
  Duration of_smallest{}, of_largest{};  // least delay among the messages of that size
  auto operator<=>(const LinkSample&) const = default;
};

// The ops of one kind of one stage that one worker ran during one step.
struct OpSample {
  WorkerId worker;
  StageId stage;
  OpKind kind = OpKind::Forward;  // Forward, BackwardInput or BackwardWeight
  int32_t ops = 0;
  Duration median{};
  auto operator<=>(const OpSample&) const = default;
};

// What the kernel of a worker's host knows of the network between the worker and a peer, as of this
// step: transport/transport.h has more of each number (LinkFigures).
struct NetworkSample {
  WorkerId peer;
  Duration round_trip{}, variation{};
  double bytes_per_second = 0;  // to the peer; 0 = not known
  int64_t repeated = 0;         // packets that were sent again
  auto operator<=>(const NetworkSample&) const = default;
};

// What the kernel of a worker's host knows of its processors: the mean step of the few that ended
// since the worker last asked.
struct ProcessorSample {
  int32_t steps = 1;  // how many steps, the last one is this
  Duration step{};    // how long this step lasted on the worker's clock; the next two are per step
  Duration cpu{};     // processor time of all threads of the worker
  // How long one thread was ready to run without a processor: the one that waited longest.
  Duration run_delay{};
  double pressure = 0;  // share of the time in which any task of the host waited for one, 0 to 1
  Figure run_delay_is = Figure::NotThere, pressure_is = Figure::NotThere;
  auto operator<=>(const ProcessorSample&) const = default;
};

// The mean of the `steps` steps that ended between two looks; the last one lasted `step`.
ProcessorSample processor_sample(const ProcessorUse& before, const ProcessorUse& after,
                                 int32_t steps, Duration step);

// All measurements of one worker in one step.
struct StepSample {
  WorkerId worker;
  int64_t step = 0;
  std::vector<LinkSample> links;  // by sender; `to` is the worker
  std::vector<OpSample> ops;      // by stage, then kind
  // By peer. Empty on wires whose links no kernel knows; also without those peers of which it was
  // not asked in this step.
  std::vector<NetworkSample> network = {};
  // None on the virtual clock, whose times no busy host changes; also in steps in which the worker
  // did not ask, and of workers of earlier versions.
  std::optional<ProcessorSample> processor = {};
  auto operator<=>(const StepSample&) const = default;
};

// The samples of all workers and steps in `events`, by worker, then step. They cover activations
// and gradients that carry a sender's stamp, and the three compute ops. Other messages (norm,
// clip decision) and ops (reductions, updates, the held-out pass) wait for others and are left out.
//
// Cost: O(n log n) for n events
std::vector<StepSample> make_samples(std::span<const Event> events);

}  // namespace tenuto
