// Trees in which gradients are summed on their way to a server shard.
//
// Without a tree each replica sends its gradient to the shard, whose port takes them one after the
// other. In a tree some replicas take the gradients of others, add their own, and send one sum. So
// the shard's port takes fewer, at the price of a second hop. A tree has two levels at most: with
// as many children at each node it takes the square of what the shard takes alone, and each further
// level would be another hop.
//
// Idea:  for each number of replicas that send to the shard, these are those whose hosts take the
//        most; the others, slowest first, go where their sum is ready earliest. The fastest of
//        these trees, the flat one included, is improved by moving single replicas.
// Limit: an update of all replicas is priced; a tree that sums what happens to be there does not
//        know which offers are in an update, so it is no tree for modes that do not wait for all.
// Right: tests/sync/aggregation_tree_test.cc compares small trees with all there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "sync/placement.h"

namespace tenuto {

// Of a replica that sends to the shard.
inline constexpr int32_t kToShard = -1;
// Trees are made for at most so many replicas.
inline constexpr size_t kMostInTree = 1024;
// Single replicas are moved in trees of at most so many.
inline constexpr size_t kMostMoved = 64;

// What a tree is made for.
struct TreeInput {
  // The host of each replica with what others use of it. What is not known is not limited.
  std::vector<PlacementHost> replicas;
  PlacementHost shard;
  Bytes gradient;             // of each replica
  double add_per_core = 1e9;  // bytes of gradients that a core adds up in a second
  Duration latency{};         // of a message
  Duration interval{};        // from update to update
};

// A tree.
struct AggregationTree {
  std::vector<int32_t> parents;  // of each replica: another replica, or kToShard
  // From the moment when all have their gradients until the shard has added up all of them.
  Duration time{};
  bool is_flat() const;  // all send to the shard
};

// How long an update takes in this tree. A message occupies the sender's port, and that of the
// receiver after those that came before it; a gradient is added when it has come, after those
// before it. A host of which nothing is left takes for ever: Duration::max().
//
// Requires: parents of at most two levels
Duration price_tree(const TreeInput& input, const std::vector<int32_t>& parents);

// The gradients that a host takes in an interval: its port and its processors may be busy with them
// for kMostPort of it (sync/relay.h), apart from what others use. At most kMostReplicas.
int64_t most_gradients(const PlacementHost& host, const TreeInput& input);

// The fastest tree that was found in which no host is overloaded; a flat one unless another one is
// faster.
//
// Equal inputs give equal trees. The order of the replicas makes no difference but in their
// numbers.
//
// Errors: Invalid/Call     no replica, or more than kMostInTree; a gradient, a rate or an interval
//                          that is not above 0; a latency below 0
//         Infeasible/Call  a replica's port does not even send its own gradient in the interval; no
//                          tree of two levels takes all gradients
// Cost:   replicas^2 log replicas, and for up to kMostMoved replicas as much for each move
Result<AggregationTree> make_tree(const TreeInput& input);

}  // namespace tenuto
