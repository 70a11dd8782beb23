// When the gradients of replicas make an update: the sync modes, as values.
//
// A replica is one copy of the model with its own share of the data: a worker, or a whole pipeline.
// It computes a gradient, offers it, and waits until it is released with newer parameters. A mode
// says which of the offers that are here make the next update (ir/update_rule.h does that).
//
// Sources: synchronous and backup workers: Chen, Pan, Monga, Bengio, Jozefowicz, "Revisiting
// distributed synchronous SGD", 2016. x:K: K-async of Dutta, Joshi, Ghosh, Dube, Nagpurkar, "Slow
// and stale gradients can win the race", AISTATS 2018. Groups and ring: Zhang, Shen, "Straggler
// tolerant and resilient DL training on homogeneous GPUs", 2025. Rebalanced: Chen, Weng, Wang, Li,
// Li, "Semi-dynamic load balancing", SoCC 2020. Bounded: Ho et al., "More effective distributed ML
// via a stale synchronous parallel parameter server", NIPS 2013. Local steps: Stich, "Local SGD
// converges fast and communicates little", ICLR 2019; the outer step: Douillard et al., "DiLoCo",
// 2023. The window of grace: ours.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// A replica's number, from 0.
using ReplicaId = Id<struct ReplicaTag>;

// The most replicas that a mode may name.
constexpr int32_t kMostReplicas = 16'384;

// Which offers make an update, and when.
enum class SyncKind : uint8_t {
  Synchronous,   // all replicas' offers, once all are here
  Asynchronous,  // each offer by itself
  Count,         // the first K offers, in order of arrival; what is late joins the next update
  Grace,         // K offers and all that arrive within a window after the K-th
  Groups,        // all offers of one group; groups do not wait for each other
  Ring,          // the offers of K members of a ring, and those of their children that are here
  Backup,        // K offers of the newest version; late ones are dropped, within a limit
  Rebalanced,    // as synchronous, with more micro-batches for faster replicas
};

// What is done with the mean change of the parameters after several local steps: Nesterov's method
// with this rate and momentum. Rate 1 and momentum 0 take the mean change as it is.
struct OuterStep {
  double rate = 1, momentum = 0;
  auto operator<=>(const OuterStep&) const = default;
};

// Whether its rate is above 0 and at most 1000, and its momentum at least 0 and below 1.
bool is_in_range(const OuterStep& outer);

// A sync mode. Fields that its kind does not use keep their defaults.
//
// `groups`, `ring:K` and `rebalanced` without further figures are made from the replicas' times
// (sync/formed.h); `check` accepts them, the update rule does not.
struct SyncMode {
  SyncKind kind = SyncKind::Synchronous;
  int32_t count = 0;  // K of Count, Grace, Ring and Backup
  Duration window{};  // Grace: after the K-th offer; zero = a share of the median iteration
  std::vector<int32_t> groups;     // Groups: the group of each replica, numbered by lowest replica
  std::vector<ReplicaId> parents;  // Ring: of each replica; a member of the ring is its own
  std::vector<int64_t> shares;     // Rebalanced: micro-batches of each replica's iteration
  std::optional<int64_t> bound;    // a replica begins an iteration only if it is at most this many
                                   // offers ahead of the replica with the fewest
  int32_t local_steps = 1;         // iterations that a replica runs by itself for one offer
  OuterStep outer;                 // with local_steps above 1
  auto operator<=>(const SyncMode&) const = default;
};

// True when the mode names everything that the update rule needs: groups, parents, shares, window.
bool is_formed(const SyncMode& mode);

// The replicas that are their own parents; none = the mode has no ring.
std::vector<ReplicaId> ring_of(const SyncMode& mode);

// Whether the mode can run with this many replicas.
//
// Errors: Invalid/Call  one replica in a mode that is not synchronous; a count outside of what the
//         kind allows; groups, parents or shares of another number of replicas; a child whose
//         parent is no member of the ring; a ring of another length than K; numbers out of range;
//         an outer step without local steps; a field that the kind does not use
Status check(const SyncMode& mode, int32_t replicas);

// The mode as text:
//
//     synchronous  asynchronous  x:4  grace:4  groups  ring:6  backup:7  rebalanced  bounded:3
//
// A window: grace:4:12.5ms. Groups: groups:0,1,2/3. A ring's parents, replica by replica:
// ring:2:0,1,0,1. Shares: rebalanced:8,8,4,12. Any mode may end with +bounded:S, +local:H and
// +outer:RATE,MOMENTUM, in this order; asynchronous+bounded:3 is bounded:3.
std::string to_text(const SyncMode& mode);

// Reads the text back: the same mode.
//
// Errors: Invalid/Call what was expected and what was found, with the nearest name
Result<SyncMode> sync_mode_from_text(std::string_view text);

}  // namespace tenuto
