#include "sim/procedure_price.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "world/model.h"
#include "world/port_sides.h"

namespace tenuto {

namespace {

// The progress of one member through its messages.
struct Side {
  Duration out_free{}, in_free{};  // when its ports are free
};

// The late members: in order of arrival, those after the widest gap.
std::vector<WorkerId> latecomers(const std::vector<WorkerId>& members,
                                 const std::vector<Duration>& arrivals) {
  std::vector<size_t> order(members.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t left, size_t right) { return arrivals[left] < arrivals[right]; });
  size_t first = order.size();
  Duration widest{};
  for (size_t i = 1; i < order.size(); ++i) {
    const Duration gap = arrivals[order[i]] - arrivals[order[i - 1]];
    if (gap <= widest) continue;
    widest = gap;
    first = i;
  }
  std::vector<WorkerId> late;
  for (size_t i = first; i < order.size(); ++i) late.push_back(members[order[i]]);
  return late;
}

// The member whose transfers to and from all others take longest together; none on a tie.
std::vector<WorkerId> slowest(const std::vector<WorkerId>& members, const Cluster& cluster) {
  constexpr Bytes kPart{1 << 20};
  Duration longest{}, second{};
  size_t found = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    Duration time{};
    for (const WorkerId other : members) {
      if (other == members[i]) continue;
      time = plus(time, transfer_time(kPart, cluster.link(members[i], other).bytes_per_second));
      time = plus(time, transfer_time(kPart, cluster.link(other, members[i]).bytes_per_second));
    }
    if (i > 0 && time <= longest) {
      second = std::max(second, time);
      continue;
    }
    second = longest;
    longest = time;
    found = i;
  }
  if (longest == second) return {};
  return {members[found]};
}

// The members that an algorithm may treat as late: those that arrive late, or have slow links.
std::vector<std::vector<WorkerId>> apart(const AlgorithmCard& card,
                                         const std::vector<WorkerId>& members,
                                         const std::vector<Duration>& arrivals,
                                         const Cluster& cluster) {
  if (card.late_most == 0) return {{}};
  std::vector<std::vector<WorkerId>> all = {latecomers(members, arrivals)};
  if (card.late_most == 1) all.push_back(slowest(members, cluster));
  return all;
}

// Counts of chunks worth a try.
std::vector<int32_t> chunk_counts(const AlgorithmCard& card, int32_t members, Bytes size,
                                  AlphaBeta link) {
  if (!card.free_chunks) return {0};
  const int32_t best = best_chunks(members, size, link);
  std::vector<int32_t> counts = {best, std::max(members - 1, 1), 2 * best, std::max(best / 2, 1)};
  if (card.late_most == 1) counts.push_back(best_slow_chunks(members, size, link));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

}  // namespace

ProcedurePrice price_collective(const Collective& collective, const std::vector<Duration>& arrivals,
                                Bytes size, const Cluster& cluster) {
  CHECK(arrivals.size() == collective.members.size(), "an arrival for each member");
  const auto chunks = static_cast<size_t>(collective.chunk_count);
  std::unordered_map<WorkerId, size_t> place;
  for (size_t i = 0; i < collective.members.size(); ++i) place[collective.members[i]] = i;
  std::vector<Duration> here(arrivals.size() * chunks);  // when member i has chunk c as it is now
  for (size_t i = 0; i < here.size(); ++i) here[i] = arrivals[i / chunks];
  std::vector<Side> sides(arrivals.size());
  PortSides ports(cluster);
  ProcedurePrice price;
  price.finish = arrivals;
  price.sent.resize(arrivals.size());
  std::vector<std::pair<size_t, Duration>> landed;  // what a round changes in `here`: index, when
  for (const Round& round : collective.rounds) {
    landed.clear();
    for (size_t i = 0; i < round.moves.size();) {
      const MessageRange message = message_at(round, i);
      const WorkerId sender = round.moves[i].from, receiver = round.moves[i].to;
      const size_t from = place[sender], to = place[receiver];
      Duration start =
          std::max({sides[from].out_free, sides[to].in_free, arrivals[from], arrivals[to]});
      Bytes bytes;
      for (size_t m = message.first; m < message.end; ++m) {
        const int32_t chunk = round.moves[m].chunk.value;
        start = std::max(start, here[from * chunks + static_cast<size_t>(chunk)]);
        bytes = bytes + chunk_size(size, collective.chunk_count, chunk);
      }
      const std::vector<int32_t> passed = ports.between(sender, receiver);
      start = ports.free_at(passed, start);
      ports.occupy(passed, bytes, start);
      const Link link = cluster.link(sender, receiver);
      const Duration end = plus(start + link.latency, transfer_time(bytes, link.bytes_per_second));
      sides[from].out_free = sides[to].in_free = end;
      price.finish[from] = std::max(price.finish[from], end);
      price.finish[to] = std::max(price.finish[to], end);
      price.sent[from] = price.sent[from] + bytes;
      for (size_t m = message.first; m < message.end; ++m) {
        landed.push_back({to * chunks + static_cast<size_t>(round.moves[m].chunk.value), end});
      }
      i = message.end;
    }
    for (const auto& [index, end] : landed) here[index] = std::max(here[index], end);
  }
  price.last = *std::max_element(price.finish.begin(), price.finish.end());
  return price;
}

Result<CheapestProcedure> cheapest_all_reduce(const std::vector<WorkerId>& members,
                                              const std::vector<Duration>& arrivals, Bytes size,
                                              const Cluster& cluster, AlphaBeta link) {
  const auto count = static_cast<int32_t>(members.size());
  std::optional<CheapestProcedure> cheapest;
  std::string tried;
  for (const NamedAlgorithm& algorithm : algorithms()) {
    const AlgorithmCard& card = algorithm.card;
    if (card.goal != Goal::AllReduce) continue;
    CollectiveShape shape;
    shape.members = members;
    std::optional<Duration> best;
    for (std::vector<WorkerId>& late : apart(card, members, arrivals, cluster)) {
      shape.late = std::move(late);
      for (const int32_t chunks : chunk_counts(card, count, size, link)) {
        shape.chunks = chunks;
        if (int64_t{chunks} * count > kMostMoves) continue;
        auto made = make_procedure(card.name, shape);
        if (!made.ok()) continue;  // the algorithm cannot do this shape
        auto price = price_collective(made.value().collective, arrivals, size, cluster);
        if (!best || price.last < *best) best = price.last;
        if (cheapest && cheapest->price.last <= price.last) continue;
        cheapest = CheapestProcedure{std::move(made).value(), std::move(price), ""};
      }
    }
    if (best) {
      tried +=
          cat(tried.empty() ? "" : ", ", card.name, " ", fixed(to_milliseconds(*best), 3), " ms");
    }
  }
  if (!cheapest) return invalid("a collective needs different workers, and one at least");
  cheapest->reason = cat("the least of ", tried);
  return std::move(*cheapest);
}

}  // namespace tenuto
