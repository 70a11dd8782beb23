#include "world/fault.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "world/job.h"

namespace tenuto {

namespace {

bool ends_process(const Fault& fault) { return fault.kind == "kill" || fault.kind == "stop"; }

bool changes_process(const Fault& fault) { return ends_process(fault) || fault.kind == "start"; }

// True when the fault happens to a worker at one moment of one step.
bool befalls_worker(const Fault& fault) {
  return changes_process(fault) || fault.kind == "partition" || (is_hog(fault) && fault.for_ms > 0);
}

void worsen(const Fault& fault, LinkState& state) {
  state.link.latency = plus(state.link.latency, from_milliseconds(fault.latency_ms));
  state.jitter = plus(state.jitter, from_milliseconds(fault.jitter_ms));
  const double most = fault.megabytes_per_second * 1e6;
  double& rate = state.link.bytes_per_second;
  if (most > 0 && (rate == 0 || most < rate)) rate = most;
}

std::string describe_hog(const Fault& fault) {
  const std::string time = fault.for_ms > 0 ? cat(" for ", fault.for_ms, " ms") : std::string();
  if (fault.kind == "cpu-hog") {
    return cat("a hog of ", fault.threads, fault.threads == 1 ? " thread" : " threads",
               " computes on the host of worker ", fault.worker, time);
  }
  return cat("a hog on the host of worker ", fault.worker, " sends itself ",
             fault.megabytes_per_second > 0 ? cat(fault.megabytes_per_second, " MB/s")
                                            : std::string("as much as it can"),
             time);
}

// The worker of that name; see worker_of().
WorkerId worker_named(const std::string& text, const Seats& seats) {
  const char* const end = text.data() + text.size();
  int32_t first = 0, stage = 0;
  const auto [point, bad] = std::from_chars(text.data(), end, first);
  if (bad != std::errc() || first < 0) return {};
  if (point == end) return {first};
  const auto [rest, worse] = std::from_chars(point + 1, end, stage);
  const bool fits = *point == '.' && worse == std::errc() && rest == end;
  return fits ? seats.worker(first, stage) : WorkerId{};
}

// The pairs of workers whose links, both ways, a slow link slows that is not one direction alone.
std::vector<std::pair<WorkerId, WorkerId>> slow_pairs(const Fault& fault, const Seats& seats,
                                                      const Cluster& base) {
  const auto workers = static_cast<int32_t>(base.workers.size());
  if (fault.link >= 0) return seats.pairs(fault.link, workers);
  if (!fault.pair.empty()) {
    const auto pair = pair_of(fault, seats);
    CHECK(pair, "a fault of two workers that are there");
    return {*pair};
  }
  const std::optional<Port> port = port_of(fault, seats, base);
  CHECK(port, "a fault of a port that is there");
  std::vector<std::pair<WorkerId, WorkerId>> pairs;
  for (const WorkerId device : port->devices) {
    for (int32_t other = 0; other < workers; ++other) {
      const bool within = port->has({other});
      // Of two devices of the port, the lower one names the pair.
      if (!within || (port->inside && device.value < other)) pairs.push_back({device, {other}});
    }
  }
  return pairs;
}

// True when the fault changes links, for a time or for a moment.
bool is_of_links(const Fault& fault) { return !is_of_worker(fault) && !is_of_coordinator(fault); }

}  // namespace

bool on_virtual_clock(const Job& job) {
  return job.device.kind == "paced" && job.device.clock == "virtual";
}

bool is_of_coordinator(const Fault& fault) {
  return fault.kind == "kill-coordinator" || fault.kind == "stop-coordinator";
}

bool is_hog(const Fault& fault) { return fault.kind == "cpu-hog" || fault.kind == "bandwidth-hog"; }

bool is_of_worker(const Fault& fault) {
  return fault.kind == "slow-worker" || fault.kind == "dead-worker" || fault.kind == "clock-skew" ||
         is_hog(fault) || befalls_worker(fault);
}

WorkerId worker_of(const Fault& fault, const Seats& seats) {
  return worker_named(fault.worker, seats);
}

std::optional<std::pair<WorkerId, WorkerId>> pair_of(const Fault& fault, const Seats& seats) {
  const size_t dash = fault.pair.find('-');
  if (dash == std::string::npos) return std::nullopt;
  const WorkerId one = worker_named(fault.pair.substr(0, dash), seats);
  const WorkerId other = worker_named(fault.pair.substr(dash + 1), seats);
  if (one.value < 0 || other.value < 0 || one == other) return std::nullopt;
  return std::pair(one, other);
}

std::optional<Port> port_of(const Fault& fault, const Seats& seats, const Cluster& base) {
  for (const Port& port : base.ports) {
    if (port.name == fault.port) return port;
  }
  const WorkerId worker = worker_named(fault.port, seats);
  if (worker.value < 0 || static_cast<size_t>(worker.value) >= base.workers.size()) {
    return std::nullopt;
  }
  Port port;
  port.name = fault.port;
  port.devices = {worker};
  return port;
}

const Fault* end_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                    const Seats& seats) {
  for (const Fault& fault : faults) {
    if (!ends_process(fault) || fault.at_step != step) continue;
    if (worker_of(fault, seats) == worker) return &fault;
  }
  return nullptr;
}

std::map<WorkerId, Duration> partitions_at(const std::vector<Fault>& faults, int64_t step,
                                           const Seats& seats) {
  std::map<WorkerId, Duration> cut_off;
  for (const Fault& fault : faults) {
    if (fault.kind != "partition" || !in_force(fault, step)) continue;
    Duration& lasts = cut_off[worker_of(fault, seats)];
    lasts = std::max(lasts, from_milliseconds(fault.for_ms));
  }
  return cut_off;
}

Duration skew_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                 const Seats& seats) {
  Duration skew{};
  for (const Fault& fault : faults) {
    if (fault.kind != "clock-skew" || !in_force(fault, step)) continue;
    if (worker_of(fault, seats) == worker) {
      skew = std::clamp(skew + from_milliseconds(fault.skew_ms), -kLongestTime, kLongestTime);
    }
  }
  return skew;
}

double speed_at(const std::vector<Fault>& faults, int64_t step, WorkerId worker,
                const Seats& seats) {
  double speed = 1;
  for (const Fault& fault : faults) {
    if (fault.kind != "slow-worker" || !in_force(fault, step)) continue;
    if (worker_of(fault, seats) == worker) speed *= fault.speed;
  }
  return speed;
}

std::vector<bool> alive_at(const std::vector<Fault>& faults, int64_t step, const Seats& seats,
                           int32_t workers) {
  std::vector<bool> alive(static_cast<size_t>(workers), true);
  for (const Fault& fault : faults) {
    if (fault.kind != "dead-worker" || !in_force(fault, step)) continue;
    const WorkerId worker = worker_of(fault, seats);
    CHECK(worker.value >= 0 && worker.value < workers, "a fault of a worker that is there");
    alive[static_cast<size_t>(worker.value)] = false;
  }
  return alive;
}

Cluster with_faults(const Cluster& base, const std::vector<Fault>& faults, int64_t step,
                    const Seats& seats) {
  Cluster cluster = with_links(base, links_at(faults, step, seats, base));
  const auto workers = static_cast<int32_t>(base.workers.size());
  for (const Fault& fault : faults) {
    const double rate = fault.megabytes_per_second * 1e6;
    if (fault.kind != "slow-link" || fault.port.empty() || rate <= 0 || !in_force(fault, step)) {
      continue;
    }
    for (Port& port : cluster.ports) {
      if (port.name == fault.port) port.bytes_per_second = std::min(port.bytes_per_second, rate);
    }
  }
  const std::vector<bool> alive = alive_at(faults, step, seats, workers);
  for (int32_t w = 0; w < workers; ++w) {
    Worker& worker = cluster.workers[static_cast<size_t>(w)];
    worker.speed *= speed_at(faults, step, {w}, seats);
    worker.alive = worker.alive && alive[static_cast<size_t>(w)];
  }
  return cluster;
}

bool lasts(const Fault& fault) {
  return fault.kind != "broken-connection" && !befalls_worker(fault) && !is_of_coordinator(fault);
}

bool in_force(const Fault& fault, int64_t step) {
  if (!lasts(fault)) return fault.at_step == step;
  return fault.at_step <= step && (fault.until_step < 0 || step < fault.until_step);
}

LinkStates links_at(const std::vector<Fault>& faults, int64_t step, const Seats& seats,
                    const Cluster& base) {
  LinkStates states;
  const auto workers = static_cast<int32_t>(base.workers.size());
  const auto touch = [&](const Fault& fault, WorkerId from, WorkerId to) {
    CHECK(from.value >= 0 && from.value < workers && to.value >= 0 && to.value < workers,
          "a fault of workers that are there");
    const auto [place, fresh] = states.try_emplace({from, to});
    if (fresh) place->second.link = base.link(from, to);
    worsen(fault, place->second);
  };
  for (const Fault& fault : faults) {
    if (fault.kind != "slow-link" || !in_force(fault, step)) continue;
    if (fault.from >= 0) {
      touch(fault, {fault.from}, {fault.to});
      continue;
    }
    for (const auto& [before, behind] : slow_pairs(fault, seats, base)) {
      touch(fault, before, behind);
      touch(fault, behind, before);
    }
  }
  return states;
}

std::vector<std::pair<WorkerId, WorkerId>> breaks_at(const std::vector<Fault>& faults, int64_t step,
                                                     const Seats& seats, int32_t workers) {
  std::vector<std::pair<WorkerId, WorkerId>> pairs;
  for (const Fault& fault : faults) {
    if (fault.kind != "broken-connection" || !in_force(fault, step)) continue;
    if (fault.link < 0) {
      pairs.push_back({{fault.from}, {fault.to}});
      continue;
    }
    const auto joined = seats.pairs(fault.link, workers);
    pairs.insert(pairs.end(), joined.begin(), joined.end());
  }
  return pairs;
}

Cluster with_links(const Cluster& base, const LinkStates& states) {
  Cluster cluster = base;
  for (const auto& [ends, state] : states) {
    Link link = state.link;
    link.latency += state.jitter / 2;
    cluster.exceptions[ends] = link;
  }
  return cluster;
}

Cluster cluster_of(const Job& job) {
  if (job.network.devices != nullptr) {
    Cluster cluster = *job.network.devices;
    keep_first(cluster, job.worker_count());
    return cluster;
  }
  return uniform_cluster(job.worker_count(), {from_milliseconds(job.network.latency_ms),
                                              job.network.megabytes_per_second * 1e6});
}

bool can_slow_links(const Job& job) {
  const NetworkSettings& network = job.network;
  return on_virtual_clock(job) || network.devices != nullptr || network.latency_ms > 0 ||
         network.megabytes_per_second > 0 ||
         std::any_of(job.faults.begin(), job.faults.end(), is_of_links);
}

bool can_cut_off(const Job& job) {
  return (can_slow_links(job) && !on_virtual_clock(job)) ||
         std::any_of(job.faults.begin(), job.faults.end(),
                     [](const Fault& fault) { return fault.kind == "partition"; });
}

std::vector<int64_t> change_steps(const std::vector<Fault>& faults) {
  std::set<int64_t> steps;
  for (const Fault& fault : faults) {
    if (!lasts(fault) || is_hog(fault)) continue;
    steps.insert(fault.at_step);
    if (fault.until_step >= 0) steps.insert(fault.until_step);
  }
  steps.erase(0);
  return {steps.begin(), steps.end()};
}

bool ends_slowness(const Fault& wanted) {
  if (wanted.kind == "clock-skew") return wanted.skew_ms == 0;
  return is_of_worker(wanted) ? wanted.speed >= 1 : wanted.latency_ms <= 0;
}

std::string describe(const Fault& fault) {
  if (is_of_coordinator(fault)) {
    return fault.kind == "kill-coordinator" ? "the coordinator is killed"
                                            : "the coordinator is stopped";
  }
  if (ends_process(fault)) {
    const char* what = fault.kind == "kill" ? " is killed" : " is stopped";
    return cat("worker ", fault.worker, what,
               fault.at_op > 0 ? cat(" after ", fault.at_op, " ops") : std::string(),
               fault.for_ms > 0 ? cat(" for ", fault.for_ms, " ms") : std::string());
  }
  if (fault.kind == "start") return cat("worker ", fault.worker, " is started");
  if (fault.kind == "resume") return cat("worker ", fault.worker, " is resumed");
  if (fault.kind == "partition") {
    return cat("worker ", fault.worker, " is cut off for ", fault.for_ms, " ms");
  }
  if (fault.kind == "clock-skew") {
    return cat("the clock of worker ", fault.worker, " is ", std::abs(fault.skew_ms), " ms ",
               fault.skew_ms < 0 ? "behind" : "ahead");
  }
  if (is_hog(fault)) return describe_hog(fault);
  if (!lasts(fault)) {
    return fault.link < 0 ? cat("the connection between worker ", fault.from, " and worker ",
                                fault.to, " breaks")
                          : cat("the connection of ", describe_links(fault), " breaks");
  }
  if (fault.kind == "dead-worker") return cat("worker ", fault.worker, " is absent");
  if (fault.kind == "slow-worker") {
    return cat("worker ", fault.worker, " at ", fault.speed, " of its speed");
  }
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const char* ways = fault.from >= 0 ? "" : " each way";
  if (fault.latency_ms > 0) add(cat(fault.latency_ms, " ms more", ways));
  if (fault.jitter_ms > 0) add(cat("up to ", fault.jitter_ms, " ms of jitter"));
  if (fault.megabytes_per_second > 0) add(cat("at most ", fault.megabytes_per_second, " MB/s"));
  return text + (fault.from >= 0 ? " " : " on ") + describe_links(fault);
}

std::string describe_links(const Fault& fault) {
  if (fault.from >= 0) return cat("from worker ", fault.from, " to worker ", fault.to);
  if (fault.link >= 0) return cat("link ", fault.link);
  if (fault.pair.empty()) {
    const bool is_worker = fault.port.find_first_not_of("0123456789.") == std::string::npos;
    return cat("all links of ", is_worker ? "worker " : "the port ", fault.port);
  }
  const size_t dash = std::min(fault.pair.find('-'), fault.pair.size());
  return cat("the link between workers ", fault.pair.substr(0, dash), " and ",
             fault.pair.substr(std::min(dash + 1, fault.pair.size())));
}

}  // namespace tenuto
