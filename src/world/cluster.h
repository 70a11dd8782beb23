// The cluster as it is now. Stragglers, slow links and dead workers are all described by these
// values: a lower speed, another latency or rate, `alive` = false.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/unit.h"

namespace tenuto {

// One worker.
struct Worker {
  double speed = 1.0;  // 1 = as profiled, 0.5 = twice as slow
  Bytes memory;        // 0 = unlimited
  bool alive = true;
};

// One direction of one connection.
struct Link {
  Duration latency{};           // one way
  double bytes_per_second = 0;  // 0 = unlimited
  bool operator==(const Link&) const = default;
};

// Workers, and links by class (same host, same rack, ...) with sparse exceptions, so that 16,384
// workers fit.
struct Cluster {
  std::vector<Worker> workers;
  std::vector<int32_t> place;                                // class of each worker; empty = all 0
  std::vector<std::vector<Link>> between;                    // between[place][place]; empty: no
                                                             // latency, unlimited rate
  std::map<std::pair<WorkerId, WorkerId>, Link> exceptions;  // one entry per direction

  // The link that carries what `from` sends to `to`.
  Link link(WorkerId from, WorkerId to) const;
};

// How long work of `time` at speed 1 takes on a worker of that speed, to the nearest nanosecond.
Duration at_speed(Duration time, double speed);

// `worker_count` equal workers with every link alike.
Cluster uniform_cluster(int32_t worker_count, Link link);

}  // namespace tenuto
