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

}  // namespace

const std::vector<Key>& fault_keys() {
  static const std::vector<Key> kKeys = {
      key("fault.kind", fault_slot<&Fault::kind>, "what happens",
          {"slow-link", "slow-link-trace", "broken-connection", "slow-worker", "dead-worker",
           "kill", "stop", "start", "partition", "clock-skew", "cpu-hog", "bandwidth-hog",
           "kill-coordinator", "chaos"}),
      key("fault.link", fault_slot<&Fault::link>,
          "between stages I and I + 1 of every pipeline, both directions", whole(0, 16382)),
      key("fault.from", fault_slot<&Fault::from>,
          "instead of link, one direction: the worker that sends", whole(0, 16383)),
      key("fault.to", fault_slot<&Fault::to>, "and the worker that receives", whole(0, 16383)),
      key("fault.pair", fault_slot<&Fault::pair>,
          "slow-link, instead of link: two workers, both directions, such as \"0.1-1.1\"; each is "
          "PIPELINE.STAGE or a number"),
      key("fault.port", fault_slot<&Fault::port>,
          "slow-link, instead of link: the name of a port of network.cluster, or a worker, such as "
          "\"0.1\": all links through the port, or of the worker, both directions"),
      key("fault.latency_ms", fault_slot<&Fault::latency_ms>,
          "slow-link: additional one-way latency", kMilliseconds),
      key("fault.megabytes_per_second", fault_slot<&Fault::megabytes_per_second>,
          "slow-link: highest rate; 0 = unchanged; bandwidth-hog: its rate; 0 = as much as it can",
          kMegabytesPerSecond),
      key("fault.jitter_ms", fault_slot<&Fault::jitter_ms>,
          "slow-link: random additional latency of each message, between 0 and this",
          kMilliseconds),
      key("fault.at_step", fault_slot<&Fault::at_step>,
          "the first training step with the fault, of chaos the first step in which faults are "
          "drawn; for broken-connection, kill, stop, start, partition and kill-coordinator the "
          "only step, of hogs with for_ms the step in which they begin (0)",
          whole(0, kManySteps)),
      key("fault.until_step", fault_slot<&Fault::until_step>,
          "slow-link, slow-worker, clock-skew, cpu-hog, bandwidth-hog, chaos: the first step "
          "without it (none: lasts to the end)",
          whole(1, kManySteps)),
      key("fault.file", fault_slot<&Fault::file>,
          "slow-link-trace: lines step;links;delay_ms or step;links;break"),
      key("fault.worker", fault_slot<&Fault::worker>,
          "the worker that has the fault: \"PIPELINE.STAGE\", or its number"),
      key("fault.speed", fault_slot<&Fault::speed>,
          "slow-worker: the share of its speed that it keeps",
          Range{.low = 0, .high = 1, .low_open = true, .high_open = true}),
      key("fault.at_op", fault_slot<&Fault::at_op>,
          "kill, stop: after so many of its ops of that step (0: when the step begins)",
          whole(0, 1000000)),
      key("fault.for_ms", fault_slot<&Fault::for_ms>,
          "stop, partition, cpu-hog, bandwidth-hog: how long it lasts in real time (none: a stop "
          "is permanent, a hog lasts until until_step)",
          kMilliseconds),
      key("fault.threads", fault_slot<&Fault::threads>, "cpu-hog: how many threads compute",
          whole(1, kMostHogThreads)),
      key("fault.skew_ms", fault_slot<&Fault::skew_ms>,
          "clock-skew: how far the worker's clock is ahead, below 0 behind",
          Range{.low = -1e9, .high = 1e9}),
      key("fault.seed", fault_slot<&Fault::seed>,
          "chaos: the seed from which the faults are drawn (0)", whole(0, 9e15)),
      key("fault.every", fault_slot<&Fault::every>,
          "chaos: average number of steps from one fault to the next (10)", whole(1, kManySteps)),
      key("fault.hogs", fault_slot<&Fault::hogs>,
          "chaos: draws hogs as well, unless devices are paced (false)"),
  };
  return kKeys;
}

}  // namespace tenuto
