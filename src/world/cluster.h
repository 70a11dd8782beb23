// The cluster as it is now. Stragglers, slow links and dead workers are all described by these
// values: a lower speed, another latency or rate, `alive` = false.
#pragma once

#include <map>
#include <string>
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

// Devices whose messages share a rate beside that of their links: those of a network card, of a
// switch, of the uplink of a host. Ports may be nested: a message passes every port that separates
// its two ends.
struct Port {
  std::string name;
  std::vector<WorkerId> devices;  // ascending
  double bytes_per_second = 0;    // with full duplex in each direction
  bool half_duplex = false;       // both directions share the rate
  bool inside = false;            // messages between two of its devices pass it, too

  // True for one of its devices.
  bool has(WorkerId worker) const;
  bool operator==(const Port&) const = default;
};

// Workers, and links by class (same host, same rack, ...) with sparse exceptions, so that 16,384
// workers fit.
struct Cluster {
  std::vector<Worker> workers;
  std::vector<int32_t> place;                                // class of each worker; empty = all 0
  std::vector<std::vector<Link>> between;                    // between[place][place]; empty: no
                                                             // latency, unlimited rate
  std::map<std::pair<WorkerId, WorkerId>, Link> exceptions;  // one entry per direction
  std::vector<Port> ports;
  bool half_duplex = false;  // both directions of a link share its rate

  // The link that carries what `from` sends to `to`. Its rate is that of a message which has the
  // ports on its way for itself: the slowest of the link and of these ports.
  Link link(WorkerId from, WorkerId to) const;
};

// Takes all but the first `count` workers out of the cluster: their links and their places in
// ports, too. A port without a device goes.
//
// Requires: the cluster has at least `count` workers
void keep_first(Cluster& cluster, int32_t count);

// How long work of `time` at speed 1 takes on a worker of that speed, to the nearest nanosecond.
Duration at_speed(Duration time, double speed);

// `worker_count` equal workers with every link alike.
Cluster uniform_cluster(int32_t worker_count, Link link);

}  // namespace tenuto
