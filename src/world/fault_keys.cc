// The keys of a [[fault]]. A part of keys.h.
#include "world/key_ranges.h"
#include "world/keys.h"

namespace tenuto {
namespace {

// The address of that member in the fault that is being read.
template <auto kMember>
Slot fault_slot(Job& job) {
  if (job.faults.empty()) job.faults.emplace_back();
  return &(job.faults.back().*kMember);
}

// The first keys of a fault: what happens, and to which link.
std::vector<Key> faulty_link_keys() {
  return {
      {"fault.kind",
       fault_slot<&Fault::kind>,
       kAnyNumber,
       {"slow-link", "slow-link-trace", "broken-connection", "slow-worker", "dead-worker", "kill",
        "stop", "start", "partition", "clock-skew", "kill-coordinator", "chaos"},
       "what happens"},
      {"fault.link",
       fault_slot<&Fault::link>,
       whole(0, 16382),
       {},
       "between stages I and I + 1 of every pipeline, both directions"},
      {"fault.from",
       fault_slot<&Fault::from>,
       whole(0, 16383),
       {},
       "instead of link, one direction: the worker that sends"},
      {"fault.to", fault_slot<&Fault::to>, whole(0, 16383), {}, "and the worker that receives"},
      {"fault.latency_ms",
       fault_slot<&Fault::latency_ms>,
       kMilliseconds,
       {},
       "slow-link: additional one-way latency"},
      {"fault.megabytes_per_second",
       fault_slot<&Fault::megabytes_per_second>,
       kMegabytesPerSecond,
       {},
       "slow-link: highest rate; 0 = unchanged"},
      {"fault.jitter_ms",
       fault_slot<&Fault::jitter_ms>,
       kMilliseconds,
       {},
       "slow-link: random additional latency of each message, between 0 and this"},
  };
}

// The other keys of a fault: when it happens, and those of workers, clocks and chaos.
std::vector<Key> faulty_worker_keys() {
  return {
      {"fault.at_step",
       fault_slot<&Fault::at_step>,
       whole(0, kManySteps),
       {},
       "the first training step that has it, or any of chaos; broken-connection, kill, stop, "
       "start, partition, kill-coordinator: the only one (0)"},
      {"fault.until_step",
       fault_slot<&Fault::until_step>,
       whole(1, kManySteps),
       {},
       "slow-link, slow-worker, clock-skew, chaos: the first step without it (none: lasts to the "
       "end)"},
      {"fault.file",
       fault_slot<&Fault::file>,
       kAnyNumber,
       {},
       "slow-link-trace: lines step;links;delay_ms or step;links;break"},
      {"fault.worker",
       fault_slot<&Fault::worker>,
       kAnyNumber,
       {},
       "the worker that has the fault: \"PIPELINE.STAGE\", or its number"},
      {"fault.speed",
       fault_slot<&Fault::speed>,
       {.low = 0, .high = 1, .low_open = true, .high_open = true},
       {},
       "slow-worker: the share of its speed that it keeps"},
      {"fault.at_op",
       fault_slot<&Fault::at_op>,
       whole(0, 1000000),
       {},
       "kill, stop: after so many of its ops of that step (0: when the step begins)"},
      {"fault.for_ms",
       fault_slot<&Fault::for_ms>,
       kMilliseconds,
       {},
       "stop, partition: how long it lasts in real time (none: a stop is permanent)"},
      {"fault.skew_ms",
       fault_slot<&Fault::skew_ms>,
       {.low = -1e9, .high = 1e9},
       {},
       "clock-skew: how far the worker's clock is ahead, below 0 behind"},
      {"fault.seed",
       fault_slot<&Fault::seed>,
       whole(0, 9e15),
       {},
       "chaos: the seed from which the faults are drawn (0)"},
      {"fault.every",
       fault_slot<&Fault::every>,
       whole(1, kManySteps),
       {},
       "chaos: average number of steps from one fault to the next (10)"},
  };
}

}  // namespace

const std::vector<Key>& fault_keys() {
  static const std::vector<Key> kKeys = [] {
    std::vector<Key> all = faulty_link_keys();
    for (const Key& key : faulty_worker_keys()) all.push_back(key);
    return all;
  }();
  return kKeys;
}

}  // namespace tenuto
