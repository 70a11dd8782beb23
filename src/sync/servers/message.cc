#include "sync/servers/message.h"

#include <algorithm>
#include <set>

#include "base/contains.h"
#include "base/text.h"

namespace tenuto::servers {

namespace {

// Ranges are in order, and each stage's ranges leave nothing out.
Status check_ranges(const std::vector<KeptRange>& ranges) {
  if (ranges.empty()) return invalid("servers: expected ranges of parameters, found none");
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ElementRange& range = ranges[i].range;
    const bool is_first = i == 0 || ranges[i - 1].range.stage != range.stage;
    const int32_t stage = i == 0 ? 0 : ranges[i - 1].range.stage.value + (is_first ? 1 : 0);
    const int64_t begin = is_first ? 0 : ranges[i - 1].range.end;
    if (range.stage.value != stage || range.begin != begin || range.end <= begin) {
      return invalid(cat("servers: expected range ", i, " to begin at element ", begin,
                         " of stage ", stage, " and not to be empty, found elements ", range.begin,
                         " to ", range.end, " of stage ", range.stage));
    }
    if (ranges[i].keepers.empty() || ranges[i].keepers.size() > kMostKeepersOfRange) {
      return invalid(cat("servers: expected a server shard of range ", i, " and at most ",
                         kMostKeepersOfRange - 1, " standbys, found ", ranges[i].keepers.size(),
                         " keepers"));
    }
  }
  return ok();
}

}  // namespace

Bytes size_of(const ElementRange& range) { return {(range.end - range.begin) * kElementBytes}; }

Bytes size_of(const Payload& payload) {
  return {payload == nullptr ? 0 : static_cast<int64_t>(payload->size())};
}

Status check(const Membership& membership) {
  if (membership.epoch < 1 || membership.epoch > kMostEpochs) {
    return invalid(
        cat("servers: expected an epoch from 1 to ", kMostEpochs, ", found ", membership.epoch));
  }
  if (const Status fault = check_ranges(membership.ranges); !fault.ok()) return fault;
  const auto stages = static_cast<size_t>(membership.ranges.back().range.stage.value + 1);
  for (size_t i = 0; i < membership.replicas.size(); ++i) {
    const size_t parts = membership.replicas[i].size();
    if (parts == 0 || parts == stages) continue;
    return invalid(cat("servers: expected ", stages, " parts of replica ", i,
                       ", one of each stage, or none if it is lost, found ", parts));
  }
  std::set<PeerId> seen = {membership.decider};
  bool are_right = membership.decider.value >= 0;
  for (const PeerId peer : peers_of(membership)) {
    are_right = seen.insert(peer).second && peer.value >= 0 && are_right;
  }
  if (!are_right) return invalid("servers: expected peers with different numbers from 0 on");
  return ok();
}

std::vector<PeerId> peers_of(const Membership& membership) {
  std::vector<PeerId> peers = keepers_of(membership);
  for (const std::vector<PeerId>& parts : membership.replicas) {
    peers.insert(peers.end(), parts.begin(), parts.end());
  }
  return peers;
}

std::vector<PeerId> keepers_of(const Membership& membership) {
  std::vector<PeerId> peers;
  for (const KeptRange& kept : membership.ranges) {
    peers.insert(peers.end(), kept.keepers.begin(), kept.keepers.end());
  }
  return peers;
}

std::vector<size_t> ranges_of(const Membership& membership, StageId stage) {
  std::vector<size_t> found;
  for (size_t i = 0; i < membership.ranges.size(); ++i) {
    if (membership.ranges[i].range.stage == stage) found.push_back(i);
  }
  return found;
}

Membership without(Membership membership, PeerId lost) {
  for (KeptRange& kept : membership.ranges) std::erase(kept.keepers, lost);
  for (std::vector<PeerId>& parts : membership.replicas) {
    if (contains(parts, lost)) parts.clear();
  }
  return membership;
}

Bytes payload_of(const Message& message) {
  if (const auto* body = std::get_if<Parameters>(&message.body)) return size_of(body->payload);
  if (const auto* body = std::get_if<Gradient>(&message.body)) return size_of(body->payload);
  if (const auto* body = std::get_if<Relayed>(&message.body)) return size_of(body->payload);
  const auto* fill = std::get_if<Fill>(&message.body);
  if (fill == nullptr) return {};
  Bytes sum = size_of(fill->state);
  for (const KeptVersion& one : fill->versions) sum = sum + size_of(one.payload);
  for (const KeptGradient& one : fill->gradients) sum = sum + size_of(one.payload);
  return sum;
}

}  // namespace tenuto::servers
