#include "sim/reduction_price.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/longest_time.h"
#include "world/model.h"

namespace tenuto {

namespace {

// One directed link between two members.
struct Wire {
  Link link;
  Duration free_at{};
};

}  // namespace

std::vector<Duration> reduction_finish(const Collective& collective,
                                       const std::vector<Duration>& starts, Bytes size,
                                       const Cluster& cluster) {
  CHECK(starts.size() == collective.members.size(), "a start for each member");
  const auto chunks = static_cast<size_t>(collective.chunk_count);
  std::map<WorkerId, size_t> member;
  for (size_t i = 0; i < collective.members.size(); ++i) member[collective.members[i]] = i;
  std::vector<Duration> here(starts.size() * chunks);  // when member i has chunk c as it is now
  for (size_t i = 0; i < here.size(); ++i) here[i] = starts[i / chunks];
  std::vector<Duration> finish = starts;
  std::map<std::pair<WorkerId, WorkerId>, Wire> wires;
  std::vector<Duration> found;
  for (const Round& round : collective.rounds) {
    found.clear();
    for (const Move& move : round.moves) {
      found.push_back(here[member[move.from] * chunks + static_cast<size_t>(move.chunk.value)]);
    }
    for (size_t i = 0; i < round.moves.size(); ++i) {
      const Move& move = round.moves[i];
      const auto [place, fresh] = wires.try_emplace({move.from, move.to});
      Wire& wire = place->second;
      if (fresh) wire.link = cluster.link(move.from, move.to);
      const Bytes bytes = chunk_size(size, collective.chunk_count, move.chunk.value);
      const Duration begin = std::max(found[i], wire.free_at);
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
