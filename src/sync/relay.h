// What the hosts of replicas can do for a ring: who may be a member, and how many children each
// member may have.
//
// A member of a ring waits for the other members, and passes the gradients of its children on. So
// a replica whose host is overloaded is no member, and a member has at most as many children as its
// port takes in an iteration. What is measured tells both: how long gradients and parameters take
// on their way, and how long the tasks of a host wait for its processors.
// Right: tests/sync/relay_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/sync_mode.h"
#include "sync/scenario.h"

namespace tenuto {

// A host is overloaded if its tasks wait for a processor for at least this share of the time ...
constexpr double kOverloadedPressure = 0.5;
// ... and this many times as long as those of the median replica's host. If all are as busy, nobody
// is a better member than the others.
constexpr double kOverloadedFactor = 2;
// The share of an iteration in which a port may be busy.
constexpr double kMostPort = 0.8;

// What a replica's host can do for others, beside the replica's own work.
struct RelayLimit {
  bool is_overloaded = false;             // the replica is no member of a ring
  int64_t most_children = kMostReplicas;  // that it can have as a member
  bool operator==(const RelayLimit&) const = default;
};

// What was measured of an iteration of a replica.
struct RelaySample {
  IterationTime time;
  Duration receive{};   // the part of time.transfer in which its parameters came; 0 = not known
  double pressure = 0;  // share of the time in which tasks of its host waited, 0 to 1
};

// Means over the last iterations of each replica, and the limits that follow.
class RelayWatch {
 public:
  explicit RelayWatch(int32_t replicas);

  // An iteration has ended.
  //
  // Requires: a replica from 0 to replicas - 1; times of at least 0
  void add(ReplicaId replica, const RelaySample& sample);

  // Of each replica. One that has not been heard of has no limit.
  //
  // A child's gradient comes in once, as long as the parameters do, and goes out to the keepers, as
  // long as the parent's own does. Both directions of a port are free at the same time.
  std::vector<RelayLimit> limits() const;

 private:
  struct Mean {
    int64_t samples = 0;
    double iteration = 0, send = 0, receive = 0;  // nanoseconds
    double pressure = 0;
  };
  std::vector<Mean> means_;  // of each replica
};

// Why the ring of this mode is against the limits, as a clause; empty = it is not, or there is no
// ring. Without limits no ring is.
//
// Shapes: limits: of each replica, or none
std::string relay_fault(const SyncMode& mode, std::span<const RelayLimit> limits);

}  // namespace tenuto
