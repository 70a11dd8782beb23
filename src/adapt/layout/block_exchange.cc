#include <algorithm>

#include "adapt/layout/block_chain.h"
#include "base/random.h"

namespace tenuto {

namespace {

// A makespan must fall by this share to count as better.
constexpr double kRounding = 1e-12;
constexpr uint64_t kSeed = 11;
// Measured on random steps of 8 to 16 stages and 16 to 64 micro-batches; the result hardly depends
// on them.
constexpr size_t kTabu = 12;       // exchanges that may not be taken back
constexpr int64_t kPatience = 32;  // exchanges without success, after which it begins again from
                                   // the best order, changed by some exchanges at random
constexpr int64_t kFewestKicks = 4, kKickSpread = 5;

// The ops and transfers of a step, each with what must end before it and what waits for it: one on
// the way of its micro-batch, one at its place. Knows the longest paths.
class OpGraph {
 public:
  using Id = uint32_t;

  explicit OpGraph(const BlockChain& chain);

  // Returns false when some place waits for ever.
  bool set_orders(const PlaceOrders& orders);
  PlaceOrders orders() const;
  double makespan() const { return makespan_; }

  // Two neighbouring ops of a place on the longest path, a forward and a backward.
  struct Exchange {
    Id first = 0, second = 0;
  };
  // `turns`: which way the path takes where two are equally long, a bit each.
  void longest_path(uint64_t turns, std::vector<Exchange>& exchanges) const;
  // A lower bound on the makespan after an exchange: the longest path through either op.
  double estimate(const Exchange& exchange) const;
  bool allowed(const Exchange& exchange, const std::vector<int32_t>& most) const;
  // Makes an exchange; returns false when the first op must end before the second begins.
  bool exchange(const Exchange& exchange);

 private:
  struct Node {
    double time = 0, end = 0;
    double tail = 0;  // from the start to the end of the step
    Id route_before = 0, place_before = 0, route_after = 0, place_after = 0;
  };
  Id op(size_t place, bool backward, size_t micro) const {
    return static_cast<Id>(1 + place * chain_.ops() + (backward ? chain_.micros : 0) + micro);
  }
  size_t place_of(Id id) const { return (id - 1) / chain_.ops(); }
  bool is_op(Id id) const { return id > 0 && id <= chain_.all_ops(); }
  bool is_backward(Id id) const { return (id - 1) % chain_.ops() >= chain_.micros; }
  size_t micro_of(Id id) const { return (id - 1) % chain_.micros; }
  Id sink(size_t place) const { return first_sink_ + static_cast<Id>(place); }

  void connect(Id from, Id to, size_t hop, bool backward, size_t micro);
  void find_ends(size_t from);
  void find_tails(size_t from);

  const BlockChain& chain_;
  std::vector<Node> nodes_;  // 0 = the start; ops; transfers; an end for each place, one more
  std::vector<Id> hop_forward_, hop_backward_;  // the first transfer of each hop; 0 = takes no time
  Id first_sink_ = 0;
  std::vector<Id> sorted_;       // so that each comes after all that must end before it
  std::vector<uint32_t> where_;  // in sorted_
  std::vector<Id> first_op_;     // of each place
  std::vector<uint8_t> reached_;
  std::vector<Id> later_;
  double makespan_ = 0;
};

OpGraph::OpGraph(const BlockChain& chain) : chain_(chain), first_op_(chain.places.size()) {
  const size_t count = chain.places.size();
  auto next = static_cast<Id>(1 + chain.all_ops());
  for (const LinkLoad& hop : chain.hops) {
    for (const bool backward : {false, true}) {
      const bool takes_time = (backward ? hop.backward : hop.forward) > 0;
      (backward ? hop_backward_ : hop_forward_).push_back(takes_time ? next : 0);
      if (takes_time) next += static_cast<Id>(chain.micros);
    }
  }
  first_sink_ = next;
  nodes_.resize(first_sink_ + count + 1);
  where_.resize(nodes_.size());
  reached_.resize(nodes_.size());
  const auto end = static_cast<Id>(first_sink_ + count);
  for (size_t p = 0; p < count; ++p) {
    const BlockPlace& place = chain.places[p];
    nodes_[sink(p)].tail = place.reduction;
    for (size_t m = 0; m < chain.micros; ++m) {
      nodes_[op(p, false, m)].time = place.forward;
      nodes_[op(p, true, m)].time = place.backward;
      if (p + 1 < count) {
        connect(op(p, false, m), op(p + 1, false, m), p, false, m);
        connect(op(p + 1, true, m), op(p, true, m), p, true, m);
      } else {
        nodes_[op(p, false, m)].route_after = op(p, true, m);
        nodes_[op(p, true, m)].route_before = op(p, false, m);
      }
    }
  }
  for (size_t m = 0; m < chain.micros; ++m) nodes_[op(0, true, m)].route_after = end;
}

void OpGraph::connect(Id from, Id to, size_t hop, bool backward, size_t micro) {
  const Id first = backward ? hop_backward_[hop] : hop_forward_[hop];
  if (first == 0) {
    nodes_[from].route_after = to;
    nodes_[to].route_before = from;
    return;
  }
  const Id id = first + static_cast<Id>(micro);
  Node& transfer = nodes_[id];
  transfer.time = backward ? chain_.hops[hop].backward : chain_.hops[hop].forward;
  transfer.route_before = from;
  transfer.route_after = to;
  transfer.place_before = micro == 0 ? 0 : id - 1;
  transfer.place_after = micro + 1 == chain_.micros ? static_cast<Id>(nodes_.size() - 1) : id + 1;
  nodes_[from].route_after = id;
  nodes_[to].route_before = id;
}

bool OpGraph::set_orders(const PlaceOrders& orders) {
  const size_t count = chain_.places.size();
  // What must still end before each node may be sorted in: counted in where_.
  std::fill(where_.begin(), where_.end(), 0);
  for (size_t p = 0; p < count; ++p) {
    Id before = 0;
    size_t done[2] = {0, 0};
    for (size_t i = 0; i < chain_.ops(); ++i) {
      const bool backward = orders[p * chain_.ops() + i] != 0;
      const Id id = op(p, backward, done[backward ? 1 : 0]++);
      nodes_[id].place_before = before;
      (before == 0 ? first_op_[p] : nodes_[before].place_after) = id;
      before = id;
    }
    nodes_[before].place_after = sink(p);
    nodes_[sink(p)].place_before = before;
  }
  for (Id id = 1; id < first_sink_; ++id) {
    where_[id] = (nodes_[id].route_before != 0) + (nodes_[id].place_before != 0);
  }
  sorted_.clear();
  for (Id id = 1; id < first_sink_; ++id) {
    if (nodes_[id].route_before == 0 && nodes_[id].place_before == 0) sorted_.push_back(id);
  }
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const Node& node = nodes_[sorted_[i]];
    for (const Id after : {node.route_after, node.place_after}) {
      if (after < first_sink_ && --where_[after] == 0) sorted_.push_back(after);
    }
  }
  if (sorted_.size() + 1 < first_sink_) return false;
  find_ends(0);
  // Sorted by time, neighbouring ops of a place stand close together, so exchanges are cheap.
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [&](Id a, Id b) { return nodes_[a].end < nodes_[b].end; });
  for (size_t i = 0; i < sorted_.size(); ++i) where_[sorted_[i]] = static_cast<uint32_t>(i);
  find_tails(sorted_.size());
  return true;
}

PlaceOrders OpGraph::orders() const {
  PlaceOrders orders;
  orders.reserve(chain_.all_ops());
  for (size_t p = 0; p < chain_.places.size(); ++p) {
    for (Id id = first_op_[p]; id != sink(p); id = nodes_[id].place_after) {
      orders.push_back(is_backward(id) ? 1 : 0);
    }
  }
  return orders;
}

// From position `from` of sorted_ on.
void OpGraph::find_ends(size_t from) {
  for (size_t i = from; i < sorted_.size(); ++i) {
    Node& node = nodes_[sorted_[i]];
    node.end = std::max(nodes_[node.route_before].end, nodes_[node.place_before].end) + node.time;
  }
  makespan_ = 0;
  for (size_t p = 0; p < chain_.places.size(); ++p) {
    const Node& last = nodes_[op(p, true, chain_.micros - 1)];
    makespan_ = std::max(makespan_, last.end + chain_.places[p].reduction);
  }
}

// Before position `from` of sorted_.
void OpGraph::find_tails(size_t from) {
  for (size_t i = from; i-- > 0;) {
    Node& node = nodes_[sorted_[i]];
    node.tail = std::max(nodes_[node.route_after].tail, nodes_[node.place_after].tail) + node.time;
  }
}

void OpGraph::longest_path(uint64_t turns, std::vector<Exchange>& exchanges) const {
  exchanges.clear();
  Id id = 0;
  double latest = -1;
  for (size_t p = 0; p < chain_.places.size(); ++p) {
    const Id last = op(p, true, chain_.micros - 1);
    const double end = nodes_[last].end + chain_.places[p].reduction;
    if (end > latest) {
      latest = end;
      id = last;
    }
  }
  while (id != 0) {
    const Node& node = nodes_[id];
    const double by_route = nodes_[node.route_before].end;
    const double by_place = nodes_[node.place_before].end;
    bool takes_place = by_place > by_route;
    if (by_place == by_route) {
      takes_place = (turns & 1) != 0;
      turns = turns >> 1 | turns << 63;
    }
    if (!takes_place) {
      id = node.route_before;
      continue;
    }
    const Id before = node.place_before;
    if (before != 0 && is_op(id) && is_backward(id) != is_backward(before)) {
      exchanges.push_back({before, id});
    }
    id = before;
  }
}

double OpGraph::estimate(const Exchange& exchange) const {
  const Node& first = nodes_[exchange.first];
  const Node& second = nodes_[exchange.second];
  const double second_start =
      std::max(nodes_[first.place_before].end, nodes_[second.route_before].end);
  const double first_start = std::max(second_start + second.time, nodes_[first.route_before].end);
  const double first_tail =
      first.time + std::max(nodes_[second.place_after].tail, nodes_[first.route_after].tail);
  const double second_tail = second.time + std::max(first_tail, nodes_[second.route_after].tail);
  return std::max(first_start + first_tail, second_start + second_tail);
}

bool OpGraph::allowed(const Exchange& exchange, const std::vector<int32_t>& most) const {
  const size_t first = micro_of(exchange.first), second = micro_of(exchange.second);
  if (!is_backward(exchange.first)) return first > second;
  // The forward would come before the backward: in flight are then micro-batches first to second.
  return second - first < static_cast<size_t>(most[place_of(exchange.first)]);
}

bool OpGraph::exchange(const Exchange& exchange) {
  const Id first = exchange.first, second = exchange.second;
  const size_t from = where_[first], to = where_[second];
  // What waits for the first op must be sorted in behind the second.
  later_.clear();
  for (size_t i = from; i <= to; ++i) {
    const Id id = sorted_[i];
    const Node& node = nodes_[id];
    reached_[id] =
        id == first || reached_[node.route_before] || (id != second && reached_[node.place_before]);
    if (reached_[id]) later_.push_back(id);
  }
  const bool possible = !reached_[second];
  for (const Id id : later_) {
    if (!possible) reached_[id] = 0;
  }
  if (!possible) return false;
  size_t place = from;
  for (size_t i = from; i <= to; ++i) {
    if (reached_[sorted_[i]]) continue;
    where_[sorted_[i]] = static_cast<uint32_t>(place);
    sorted_[place++] = sorted_[i];
  }
  for (const Id id : later_) {
    reached_[id] = 0;
    where_[id] = static_cast<uint32_t>(place);
    sorted_[place++] = id;
  }
  const Id before = nodes_[first].place_before, after = nodes_[second].place_after;
  (before == 0 ? first_op_[place_of(first)] : nodes_[before].place_after) = second;
  nodes_[second].place_before = before;
  nodes_[second].place_after = first;
  nodes_[first].place_before = second;
  nodes_[first].place_after = after;
  nodes_[after].place_before = first;
  find_ends(from);
  find_tails(to + 1);
  return true;
}

// A tabu search from one order.
class Exchanger {
 public:
  Exchanger(const BlockChain& chain, const OrderLimits& limits, FoundOrders& found)
      : graph_(chain), limits_(limits), found_(found) {}

  // True when no order is faster than the one found.
  bool run(int64_t exchanges) {
    if (!graph_.set_orders(found_.orders)) return false;
    int64_t stale = 0;
    for (int64_t i = 0; i < exchanges; ++i) {
      if (found_.makespan <= limits_.least) return true;
      if (++stale > kPatience) {
        graph_.set_orders(found_.orders);
        tabu_.clear();
        stale = 0;
        for (int64_t kicks = kFewestKicks + random_.below(kKickSpread); kicks > 0; --kicks, ++i) {
          step(true);
        }
      }
      if (!step(false)) return true;
      if (graph_.makespan() < found_.makespan * (1 - kRounding)) {
        found_ = {graph_.orders(), graph_.makespan()};
        stale = 0;
      }
    }
    return false;
  }

 private:
  // Makes an exchange: any, or the one with the least estimate that does not take back a recent
  // one, unless it may give the best order so far. Returns false when none is allowed. The longest
  // path then follows only what every order must keep, so no order is faster.
  bool step(bool any) {
    graph_.longest_path(random_.next(), exchanges_);
    std::erase_if(exchanges_, [&](const OpGraph::Exchange& exchange) {
      return !graph_.allowed(exchange, limits_.most);
    });
    if (exchanges_.empty()) return false;
    const size_t chosen = any ? exchanges_.size() : most_promising();
    take(chosen < exchanges_.size() ? exchanges_[chosen]
                                    : exchanges_[static_cast<size_t>(
                                          random_.below(static_cast<int64_t>(exchanges_.size())))]);
    return true;
  }
  // exchanges_.size() when all are tabu.
  size_t most_promising() const {
    size_t chosen = exchanges_.size();
    double least = kNeverEnds;
    for (size_t i = 0; i < exchanges_.size(); ++i) {
      const double estimate = graph_.estimate(exchanges_[i]);
      if (estimate < least && (estimate < found_.makespan || !is_tabu(exchanges_[i]))) {
        least = estimate;
        chosen = i;
      }
    }
    return chosen;
  }
  void take(const OpGraph::Exchange& exchange) {
    // An impossible one is tabu too, so that it is not tried again at once.
    tabu_.push_back(graph_.exchange(exchange) ? OpGraph::Exchange{exchange.second, exchange.first}
                                              : exchange);
    if (tabu_.size() > kTabu) tabu_.erase(tabu_.begin());
  }
  bool is_tabu(const OpGraph::Exchange& exchange) const {
    return std::any_of(tabu_.begin(), tabu_.end(), [&](const OpGraph::Exchange& other) {
      return other.first == exchange.first && other.second == exchange.second;
    });
  }

  OpGraph graph_;
  const OrderLimits& limits_;
  FoundOrders& found_;
  Random random_{kSeed};
  std::vector<OpGraph::Exchange> exchanges_, tabu_;
};

}  // namespace

bool exchange_ops(const BlockChain& chain, const OrderLimits& limits, int64_t exchanges,
                  FoundOrders& found) {
  if (found.makespan <= limits.least) return true;
  return exchanges > 0 && Exchanger(chain, limits, found).run(exchanges);
}

}  // namespace tenuto
