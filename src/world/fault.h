// Rehearsed faults: what a job does to its own workers, from step to step. A list of values, and
// one function that says what they come to in a step; the worker, the faulty wire and the price all
// ask it.
//
// A job file has them as [[fault]] tables. Later kinds are further values of `kind` with keys of
// their own; links_at looks at those that concern links.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "world/cluster.h"

namespace tenuto {

struct Job;

// One [[fault]]. A "broken-connection" happens once, in step at_step: the connection is cut by
// force while both workers live. "kill" and "stop" happen once too: the worker's process ends, or
// stands still, for good or for so long; with "start" a new process comes to the place of a worker
// that is gone, and with "partition" a worker works on while nothing that it says reaches anybody
// and nothing reaches it. So does "kill-coordinator" end a process, when the commit with which the
// step begins is written down and not yet told ("stop-coordinator" and "resume", which lets a
// process that stands still go on, can only be wanted of a live run). A "dead-worker" is not there
// from the start. Two kinds stand in job files alone: whoever reads a "slow-link-trace" gets a
// "slow-link" for each link of each line of the trace, and for "chaos" what is drawn (chaos.h).
struct Fault {
  std::string kind = "slow-link";   // slow-link | slow-link-trace | broken-connection |
                                    // slow-worker | dead-worker | kill | stop | start | partition |
                                    // clock-skew | kill-coordinator | chaos
  int32_t link = -1;                // joins stage I and I + 1 of every pipeline, both directions
  int32_t from = -1, to = -1;       // instead of link: one direction between two workers
  double latency_ms = 0;            // more, one way
  double megabytes_per_second = 0;  // at most; 0 = as it is
  double jitter_ms = 0;             // more for each message, uniform between 0 and this
  int64_t at_step = 0;              // the first training step that has it
  int64_t until_step = -1;          // the first that has it no more; -1 = to the end
  std::string file;                 // slow-link-trace
  std::string worker;               // of a worker: "PIPELINE.STAGE", or
                                    // its number
  double speed = 0;                 // slow-worker: of 1, its own
  int32_t at_op = 0;                // kill, stop: when so many ops of the step have ended there
  double for_ms = 0;                // stop, partition: so long; 0 = for good, of a stop
  double skew_ms = 0;               // clock-skew: the clock is ahead of the others, < 0 behind
  int64_t seed = 0;                 // chaos: what is drawn
  int64_t every = 10;               // chaos: steps from one trouble to the next, in the mean
  auto operator<=>(const Fault&) const = default;
};

// One direction of one link in a step.
struct LinkState {
  Link link;
  Duration jitter{};  // more latency of each message, uniform in [0, jitter)
};

// The directed pairs (from, to) that a fault concerns.
using LinkStates = std::map<std::pair<WorkerId, WorkerId>, LinkState>;

// True when the fault changes links or workers for as long as it is in force, false when it only
// happens.
bool lasts(const Fault& fault);

// True when the step has the fault.
bool in_force(const Fault& fault, int64_t step);

// The links that faults have changed in a step, on top of what `base` says of them: latencies and
// jitters add up, the lowest rate counts.
//
// Shapes: worker w of `base` is worker w mod stages of pipeline w / stages
LinkStates links_at(const std::vector<Fault>& faults, int64_t step, int32_t stages,
                    const Cluster& base);

// The pairs of workers whose connection breaks in the step; the first of a pair breaks it.
//
// Shapes: as links_at, for `workers` workers
std::vector<std::pair<WorkerId, WorkerId>> breaks_at(const std::vector<Fault>& faults, int64_t step,
                                                     int32_t stages, int32_t workers);

// True when the fault is one of a worker, false when it is one of links.
bool is_of_worker(const Fault& fault);

// True when the fault ends the coordinator.
bool is_of_coordinator(const Fault& fault);

// The worker that a fault of a worker names; none when the text is neither a number nor two with a
// point between them, or when there is no such stage.
//
// Shapes: worker w is stage w mod stages of pipeline w / stages
WorkerId worker_of(const Fault& fault, int32_t stages);

// The fault that ends this worker's process, or makes it stand still, in the step, if there is one.
const Fault* end_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                    int32_t stages);

// The workers that are cut off when the step begins, and for how long.
std::map<WorkerId, Duration> partitions_at(const std::vector<Fault>& faults, int64_t step,
                                           int32_t stages);

// How far a worker's clock is ahead of the others in a step: the sum of what faults say.
Duration skew_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker, int32_t stages);

// The speed that faults leave a worker in a step: their product, 1 without any.
double speed_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker, int32_t stages);

// Which of so many workers live: those that no fault of the step says are dead.
std::vector<bool> alive_at(const std::vector<Fault>& faults, int64_t step, int32_t stages,
                           int32_t workers);

// `base` as the faults of a step leave it: links, speeds, and who lives.
Cluster with_faults(const Cluster& base, const std::vector<Fault>& faults, int64_t step,
                    int32_t stages);

// `base` with the links as `states` says. A price knows no jitter: half of it, its mean, is
// latency.
Cluster with_links(const Cluster& base, const LinkStates& states);

// The workers of a job and the links of [network], without faults.
Cluster cluster_of(const Job& job);

// True when the workers of the job can be given slow links: paced devices on the nominal clock, and
// jobs whose links are rehearsed from the beginning.
bool can_rehearse_links(const Job& job);

// True when workers of the job can be cut off: their wires can hold messages back.
bool can_cut_off(const Job& job);

// The steps at which what links_at says may change, ascending, without 0.
std::vector<int64_t> change_steps(const std::vector<Fault>& faults);

// True when a wish of a live run leaves its link or its worker as it is: no latency, whole speed.
bool ends_slowness(const Fault& wanted);

// What the fault does, in words: "20 ms more each way on link 2".
std::string describe(const Fault& fault);

}  // namespace tenuto
