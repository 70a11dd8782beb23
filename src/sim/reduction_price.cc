#include "sim/reduction_price.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/longest_time.h"
#include "world/model.h"

namespace tenuto {

namespace {

// One directed link between two members.
struct Wire {
  Link link;
  Duration free_at{};
  std::vector<int32_t> sides;  // of ports
};

// The moves of a round in the order in which they ask for their ports: those whose chunk is `found`
// first. Empty without ports: then the order does not matter.
std::vector<size_t> turns_of(const std::vector<Duration>& found, const PortSides& ports) {
  if (ports.empty()) return {};
  std::vector<size_t> turns(found.size());
  std::iota(turns.begin(), turns.end(), size_t{0});
  std::stable_sort(turns.begin(), turns.end(),
                   [&](size_t left, size_t right) { return found[left] < found[right]; });
  return turns;
}

}  // namespace

std::vector<Duration> reduction_finish(const Collective& collective,
                                       const std::vector<Duration>& starts, Bytes size,
                                       const Cluster& cluster) {
  PortSides ports(cluster);
  return reduction_finish(collective, starts, size, cluster, ports);
}

std::vector<Duration> reduction_finish(const Collective& collective,
                                       const std::vector<Duration>& starts, Bytes size,
                                       const Cluster& cluster, PortSides& ports) {
  CHECK(starts.size() == collective.members.size(), "a start for each member");
  const auto chunks = static_cast<size_t>(collective.chunk_count);
  std::vector<Duration> by_chunk(starts.size() * chunks);
  for (size_t i = 0; i < by_chunk.size(); ++i) by_chunk[i] = starts[i / chunks];
  return reduction_finish_in_parts(collective, std::move(by_chunk), size, cluster, ports);
}

std::vector<Duration> reduction_finish_in_parts(const Collective& collective,
                                                std::vector<Duration> starts, Bytes size,
                                                const Cluster& cluster, PortSides& ports) {
  const auto chunks = static_cast<size_t>(collective.chunk_count);
  CHECK(chunks > 0 && starts.size() == collective.members.size() * chunks,
        "a start for each chunk of each member");
  std::map<WorkerId, size_t> member;
  for (size_t i = 0; i < collective.members.size(); ++i) member[collective.members[i]] = i;
  std::vector<Duration> finish(collective.members.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    finish[i / chunks] = std::max(finish[i / chunks], starts[i]);
  }
  std::vector<Duration> here = std::move(starts);  // when member i has chunk c as it is now
  std::map<std::pair<WorkerId, WorkerId>, Wire> wires;
  std::vector<Duration> found;
  for (const Round& round : collective.rounds) {
    found.clear();
    for (const Move& move : round.moves) {
      found.push_back(here[member[move.from] * chunks + static_cast<size_t>(move.chunk.value)]);
    }
    const std::vector<size_t> turns = turns_of(found, ports);
    for (size_t k = 0; k < round.moves.size(); ++k) {
      const size_t i = turns.empty() ? k : turns[k];
      const Move& move = round.moves[i];
      const auto [place, fresh] = wires.try_emplace({move.from, move.to});
      Wire& wire = place->second;
      if (fresh) {
        wire.link = cluster.link(move.from, move.to);
        wire.sides = ports.between(move.from, move.to);
      }
      const Bytes bytes = chunk_size(size, collective.chunk_count, move.chunk.value);
      const Duration begin = ports.free_at(wire.sides, std::max(found[i], wire.free_at));
      ports.occupy(wire.sides, bytes, begin);
      wire.free_at = plus(begin, transfer_time(bytes, wire.link.bytes_per_second));
      const size_t target = member[move.to];
      Duration& at = here[target * chunks + static_cast<size_t>(move.chunk.value)];
      const Duration arrival = plus(wire.free_at, wire.link.latency);
      at = move.add ? std::max(at, arrival) : arrival;
      finish[target] = std::max(finish[target], at);
      finish[member[move.from]] = std::max(finish[member[move.from]], wire.free_at);
    }
  }
  return finish;
}

}  // namespace tenuto
