// Injected faults: what a job does to its own workers, step by step. The faults are a list of
// values, and the functions below say what they do in a step; the worker, the faulty transport and
// the price all call these.
//
// A job file has them as [[fault]] tables. Each value of `kind` has keys of its own; links_at uses
// only the faults of kind "slow-link".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "world/cluster.h"
#include "world/seats.h"

namespace tenuto {

struct Job;

// The most threads of one "cpu-hog".
inline constexpr int32_t kMostHogThreads = 1024;

// One [[fault]]. These kinds happen once, in step at_step: "broken-connection" cuts the connection
// by force while both workers live; "kill" ends the worker's process; "stop" suspends it, for
// for_ms or for good; "start" starts a new process in place of a worker that is gone; "partition"
// lets a worker run on while its messages reach nobody and none reach it; "kill-coordinator" ends
// the coordinator when it has written the commit that begins the step and has not yet announced it.
// A "dead-worker" is absent from the start. A *hog* is a process that the launcher starts on the
// host of a worker, and that really takes something from it: a "cpu-hog" its processors, a
// "bandwidth-hog" the network device that carries the traffic. Only a live run can be asked for
// "stop-coordinator" and "resume" (of a suspended process). Of the functions below, only
// worker_of() and describe() take a "resume". Two kinds are only in job files and are replaced when
// the file is read: a "slow-link-trace" by a "slow-link" for each link of each line of the trace,
// "chaos" by the faults that it draws (chaos.h).
struct Fault {
  std::string kind = "slow-link";   // slow-link | slow-link-trace | broken-connection |
                                    // slow-worker | dead-worker | kill | stop | start | partition |
                                    // clock-skew | cpu-hog | bandwidth-hog | kill-coordinator |
                                    // chaos
  int32_t link = -1;                // link I joins stages I and I + 1 of each pipeline, both ways
  int32_t from = -1, to = -1;       // instead of link: one direction between two workers
  std::string pair;                 // instead of link: two workers, both ways: "0.1-1.1" or "1-5"
  std::string port;                 // instead of link: the name of a port of the cluster file, or a
                                    // worker: all links of its own, both ways
  double latency_ms = 0;            // added to the latency, one way
  double megabytes_per_second = 0;  // slow-link: the highest rate; 0 = unchanged.
                                    // bandwidth-hog: its rate; 0 = as much as it can
  double jitter_ms = 0;             // added to each message, uniform between 0 and this
  int64_t at_step = 0;              // the first training step that has it
  int64_t until_step = -1;          // the first step after it; -1 = it lasts to the end
  std::string file;                 // slow-link-trace
  std::string worker;               // faults of a worker: "PIPELINE.STAGE", or
                                    // its number
  double speed = 0;                 // slow-worker: as a share of its own speed
  int32_t at_op = 0;                // kill, stop: after so many ops of the step on that worker
  double for_ms = 0;                // stop, partition, hogs: how long; 0 = for good (not of a
                                    // partition), or up to until_step (hogs)
  int32_t threads = 0;              // cpu-hog: how many compute
  double skew_ms = 0;               // clock-skew: how far the clock is ahead; < 0 = behind
  int64_t seed = 0;                 // chaos: of the random numbers
  int64_t every = 10;               // chaos: steps from one fault to the next, on average
  bool hogs = false;                // chaos: draws hogs as well, where there can be any
  auto operator<=>(const Fault&) const = default;
};

// One direction of one link in a step.
struct LinkState {
  Link link;
  Duration jitter{};  // added to each message's latency, uniform in [0, jitter)
};

// The links that faults change, by (from, to).
using LinkStates = std::map<std::pair<WorkerId, WorkerId>, LinkState>;

// True when the fault changes links or workers for as long as it is in force, false when it happens
// at one moment. A hog with for_ms begins at one moment, and ends by itself.
bool lasts(const Fault& fault);

// True when the fault is in force, or happens, in that step.
bool in_force(const Fault& fault, int64_t step);

// The links that faults change in a step, starting from the links of `base`: latencies and jitters
// add up, the lowest rate counts. A slow port slows each link that passes it.
//
// Cost: linear in the links of the faults; a port of k workers, of n, has up to 2 k n
LinkStates links_at(const std::vector<Fault>& faults, int64_t step, const Seats& seats,
                    const Cluster& base);

// The two workers that `pair` of a fault names; none if it does not name two different workers.
std::optional<std::pair<WorkerId, WorkerId>> pair_of(const Fault& fault, const Seats& seats);

// The port that `port` of a fault names: that of the cluster, or one of a worker alone, whose links
// have no rate in common (bytes_per_second = 0). None if there is neither.
std::optional<Port> port_of(const Fault& fault, const Seats& seats, const Cluster& base);

// The links of a fault of links, in words: "link 2", "the link between workers 0.1 and 1.1".
std::string describe_links(const Fault& fault);

// The pairs of workers, of `workers`, whose connection breaks in the step; the first of a pair
// breaks it.
std::vector<std::pair<WorkerId, WorkerId>> breaks_at(const std::vector<Fault>& faults, int64_t step,
                                                     const Seats& seats, int32_t workers);

// True when the fault concerns a worker, false when it concerns links or the coordinator.
bool is_of_worker(const Fault& fault);

// True when the fault kills or suspends the coordinator.
bool is_of_coordinator(const Fault& fault);

// True when the fault is a process that takes resources of a worker's host.
bool is_hog(const Fault& fault);

// The worker that a fault of a worker names. None when the text is neither a number nor two numbers
// with a point between them, or when there is no such place.
WorkerId worker_of(const Fault& fault, const Seats& seats);

// The "kill" or "stop" fault that hits this worker in the step, or nullptr.
const Fault* end_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                    const Seats& seats);

// The workers that are cut off when the step begins, and for how long.
std::map<WorkerId, Duration> partitions_at(const std::vector<Fault>& faults, int64_t step,
                                           const Seats& seats);

// How far a worker's clock is ahead of the others in a step: the sum over all faults.
Duration skew_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                 const Seats& seats);

// The speed that faults leave a worker in a step: the product of their speeds, 1 without any.
double speed_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                const Seats& seats);

// Which of `workers` workers live in the step: those without a "dead-worker" fault.
std::vector<bool> alive_at(const std::vector<Fault>& faults, int64_t step, const Seats& seats,
                           int32_t workers);

// `base` with the faults of a step: their links, speeds and dead workers. A rate of a slow port of
// the cluster file is that of the port: all its messages share it.
Cluster with_faults(const Cluster& base, const std::vector<Fault>& faults, int64_t step,
                    const Seats& seats);

// `base` with the links of `states`. A price has no jitter, so the mean of the jitter, half of it,
// is added to the latency.
Cluster with_links(const Cluster& base, const LinkStates& states);

// The workers of a job and the links of [network], without faults: those of its cluster file, or
// equal ones.
//
// Requires: the cluster file has a device for each worker (world/fit.h)
Cluster cluster_of(const Job& job);

// True when the devices of the job are paced and keep the virtual clock.
bool on_virtual_clock(const Job& job);

// True when the workers of the job can be given slow links: with paced devices on the virtual
// clock, and in jobs that set a latency, a rate or a fault of links from the beginning.
bool can_slow_links(const Job& job);

// True when workers of the job can be cut off: their transports can hold messages back.
bool can_cut_off(const Job& job);

// The steps at which a lasting fault begins or ends, so that the result of links_at may change;
// ascending, without 0. Not those of hogs: what they cost is known only when they run.
std::vector<int64_t> change_steps(const std::vector<Fault>& faults);

// True when `wanted`, a fault that a person asks of a live run, sets its link or worker back to
// normal: no added latency, full speed, no clock skew.
bool ends_slowness(const Fault& wanted);

// What the fault does, in words: "20 ms more each way on link 2".
std::string describe(const Fault& fault);

}  // namespace tenuto
