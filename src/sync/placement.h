// Which host each server shard, standby and replica goes to.
//
// A host has processors and a port. What is placed on it takes of both, beside what other jobs use.
// The most loaded port or processor of all hosts shall be as little loaded as possible, because an
// update waits for it. A shard and its standby are never on one host if they can be on two: the
// loss of a host would take both copies of a range.
//
// Idea:  what can be on one host only is put there. Then, largest demand first, each item goes to
//        the host whose most loaded resource is the least after that. Then single items move, and
//        pairs change places, while this lowers the larger load of two hosts. At last a search with
//        a limit looks for a placement whose largest load is lower. So small cases are optimal.
// Right: tests/sync/placement_test.cc compares small cases with brute force.
//
// Source: largest first on the least loaded host, Graham, "Bounds on multiprocessing timing
// anomalies", SIAM J. Appl. Math. 1969; placing servers by processors and ports: Zhang, Shen,
// "Straggler tolerant and resilient DL training on homogeneous GPUs", 2025.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/sync_mode.h"
#include "sync/ledger.h"

namespace tenuto {

// A host, and what other jobs use of it (sync/ledger.h).
struct PlacementHost {
  std::string name;
  HostAmounts capacity{};  // of each resource; 0 = not known
  HostAmounts used{};      // by others
};

// Something that is placed.
struct PlacementItem {
  std::string name;  // in sentences: "the standby of range 2"
  HostAmounts demand{};
  std::vector<size_t> hosts;   // on which it can be; empty = on all
  std::optional<size_t> twin;  // the item that it should not share a host with
};

// Where everything is.
struct Placement {
  std::vector<size_t> hosts;       // of each item
  std::vector<HostAmounts> loads;  // of each host, with what others use
  // The largest load of a host, as a part of its capacity. Where a capacity is not known, it counts
  // as the largest one that is known, or if there is none, as the sum of all loads.
  double most = 0;
};

// Places the items.
//
// Equal inputs give equal placements. The order of the hosts makes no difference but in their
// indices.
//
// Params: is_limited: an overloaded host is an error. False = the demands are only known up to a
//         factor, so nobody can say what is too much
// Errors: Invalid/Call     no host; two hosts of one name; amounts below 0 or beyond
//                          kMostHostAmount; a host or a twin that there is not; twins of which one
//                          is not the other's only one
//         Infeasible/Call  a host would be overloaded: which, how much it lacks, and what would
//                          make it fit
// Cost:   sweeps x items x (hosts + items), and a search of at most some thousand steps
Result<Placement> place(const std::vector<PlacementHost>& hosts,
                        const std::vector<PlacementItem>& items, bool is_limited = true);

// How often a job's replicas offer gradients and its keepers make updates, per second.
struct UpdateRates {
  double gradients = 0;  // of all replicas
  double updates = 0;
};

// The rates of a mode if no replica ever waits for a server. A run has at most these rates.
//
// Requires: at least one replica; an iteration above 0
UpdateRates rates_of(const SyncMode& mode, int32_t replicas, Duration iteration);

// What a keeper of so many bytes of parameters takes of its host. The first keeper of a range, its
// shard, gets each gradient and answers a read for it; the standby only gets it. `apply` is the
// time in which one core makes an update of the range.
HostAmounts demand_of_keeper(Bytes size, const UpdateRates& rates, Duration apply, bool is_first);

// What a replica with so many bytes of parameters takes of its host: for each gradient it sends one
// copy to the shards and one to the standbys, and reads the parameters once.
//
// Units: gradients: per second, of this replica; cores: thousandths
HostAmounts demand_of_replica(Bytes size, double gradients, int64_t cores);

}  // namespace tenuto
