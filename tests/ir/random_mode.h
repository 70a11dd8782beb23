// Random sync modes that `check` accepts and the update rule can run.
#pragma once

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "ir/sync_mode.h"

namespace tenuto {

// A formed mode for `replicas` (at least 2) with `micros` micro-batches each; all kinds are equally
// likely.
inline SyncMode random_mode(Random& random, int32_t replicas, int64_t micros) {
  const auto up_to = [&](int64_t most) { return static_cast<int32_t>(1 + random.below(most)); };
  SyncMode mode;
  mode.kind = static_cast<SyncKind>(random.below(8));
  switch (mode.kind) {
    case SyncKind::Count:
      mode.count = up_to(replicas);
      break;
    case SyncKind::Backup:
      mode.count = up_to(replicas - 1);
      break;
    case SyncKind::Grace:
      mode.count = up_to(replicas);
      mode.window = Duration(1 + random.below(20'000'000));
      break;
    case SyncKind::Groups: {
      int32_t next = 0;
      for (int32_t i = 0; i < replicas; ++i) {
        mode.groups.push_back(static_cast<int32_t>(random.below(next + 1)));
        next = std::max(next, mode.groups.back() + 1);
      }
      break;
    }
    case SyncKind::Ring: {
      std::vector<ReplicaId> ring;
      for (int32_t i = 0; i < replicas; ++i) {
        if (random.below(2) == 0 || (ring.empty() && i == replicas - 1)) ring.push_back({i});
      }
      mode.count = static_cast<int32_t>(ring.size());
      for (int32_t i = 0; i < replicas; ++i) {
        const bool member = std::find(ring.begin(), ring.end(), ReplicaId{i}) != ring.end();
        mode.parents.push_back(member ? ReplicaId{i}
                                      : ring[static_cast<size_t>(random.below(std::ssize(ring)))]);
      }
      break;
    }
    case SyncKind::Rebalanced: {
      mode.shares.assign(static_cast<size_t>(replicas), micros);
      for (int32_t i = 0; i < replicas; ++i) {
        const auto from = static_cast<size_t>(random.below(replicas));
        const auto to = static_cast<size_t>(random.below(replicas));
        const int64_t moved = random.below(mode.shares[from]);  // at least one stays
        mode.shares[from] -= moved;
        mode.shares[to] += moved;
      }
      break;
    }
    default:
      break;
  }
  if (random.below(3) == 0) mode.bound = random.below(4);
  if (random.below(4) == 0) {
    mode.local_steps = 1 + up_to(7);
    if (random.below(2) == 0) mode.outer = {0.1 * up_to(9), 0.9};
  }
  return mode;
}

}  // namespace tenuto
