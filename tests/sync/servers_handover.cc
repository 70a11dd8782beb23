// A cluster whose replicas keep the parameters: which process each peer lives in, and how ranges
// are handed over when the ring changes or a process dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/contains.h"
#include "sync/servers_cluster.h"

namespace tenuto::servers {

// Processes for the parts of the replica that have none which lives.
void Cluster::add_hosts(size_t replica) {
  if (!replicas_keep()) return;
  std::vector<int32_t>& hosts = hosts_[replica];
  hosts.resize(static_cast<size_t>(stages_), -1);
  for (int32_t& host : hosts) {
    if (processes_.count(host) > 0) continue;
    host = next_process_++;
    processes_.insert(host);
  }
}

// The living processes that compute this stage; `ring_only`: of replicas of the ring, or of all if
// none of these lives.
std::vector<int32_t> Cluster::hosts_of(StageId stage, bool ring_only) const {
  std::vector<int32_t> found;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const int32_t host = hosts_[i][static_cast<size_t>(stage.value)];
    const ReplicaId replica{static_cast<int32_t>(i)};
    const bool is_wanted = !ring_only || ring_.empty() || contains(ring_, replica);
    if (is_wanted && processes_.count(host) > 0) found.push_back(host);
  }
  return found.empty() && ring_only ? hosts_of(stage, false) : found;
}

// One that does not keep this range yet, at random.
std::optional<int32_t> Cluster::free_host(const KeptRange& kept, bool ring_only) {
  std::vector<int32_t> hosts = hosts_of(kept.range.stage, ring_only);
  std::erase_if(hosts, [&](int32_t host) {
    return std::any_of(kept.keepers.begin(), kept.keepers.end(),
                       [&](PeerId keeper) { return process_of_.at(keeper) == host; });
  });
  if (hosts.empty()) return std::nullopt;
  return hosts[static_cast<size_t>(random_.below(std::ssize(hosts)))];
}

// Requires: a process that lives, since each range has a keeper in one.
int32_t Cluster::host_of_decider() {
  return *std::next(processes_.begin(), random_.below(std::ssize(processes_)));
}

// True when every range has a living keeper elsewhere that has it.
bool Cluster::can_kill(int32_t process) const {
  return std::all_of(
      membership_.ranges.begin(), membership_.ranges.end(), [&](const KeptRange& kept) {
        return std::any_of(kept.keepers.begin(), kept.keepers.end(), [&](PeerId keeper) {
          return is_alive(keeper) && process_of_.at(keeper) != process &&
                 shards_.at(keeper).is_filled();
        });
      });
}

// All peers of the process die: its part, the keepers, and the decider.
bool Cluster::kill_one_of(const std::set<int32_t>& processes) {
  std::vector<int32_t> found;
  for (const int32_t process : processes) {
    if (can_kill(process)) found.push_back(process);
  }
  if (found.empty()) return false;
  const int32_t killed = found[static_cast<size_t>(random_.below(std::ssize(found)))];
  processes_.erase(killed);
  for (const auto& one : process_of_) {
    if (one.second == killed && is_alive(one.first)) die(one.first);
  }
  return true;
}

// The replicas that keep ranges from now on.
void Cluster::set_ring(const SyncMode& mode) {
  if (!replicas_keep()) return;
  std::vector<ReplicaId> ring;
  for (size_t i = 0; i < mode.parents.size(); ++i) {
    const ReplicaId replica{static_cast<int32_t>(i)};
    if (mode.parents[i] == replica) ring.push_back(replica);
  }
  ring_changes_ += ring == ring_ ? 0 : 1;
  ring_ = std::move(ring);
}

// Ranges go to the ring: one keeper of a range ends at a time, and only while another one that
// lives has the range. True = the members have changed.
bool Cluster::move_keepers() {
  if (!dead_.empty()) return false;
  bool has_moved = false;
  for (KeptRange& kept : membership_.ranges) {
    const std::vector<int32_t> wanted = hosts_of(kept.range.stage, true);
    for (size_t i = kept.keepers.size(); i-- > 0;) {
      const PeerId keeper = kept.keepers[i];
      if (contains(wanted, process_of_.at(keeper)) || !can_lose(kept, keeper)) continue;
      if (!free_host(kept, true)) continue;
      shards_.erase(keeper);
      kept.keepers.erase(kept.keepers.begin() + static_cast<std::ptrdiff_t>(i));
      ++handed_over_;
      has_moved = true;
    }
    if (kept.keepers.size() > 1) continue;
    std::optional<int32_t> host = free_host(kept, true);
    if (!host) host = free_host(kept, false);
    if (!host) continue;
    kept.keepers.push_back(add_shard(kept.range, false));
    process_of_[kept.keepers.back()] = *host;
    has_moved = true;
  }
  return has_moved;
}

}  // namespace tenuto::servers
