#include "sync/aggregation_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sync/relay.h"

namespace tenuto {

namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();
// A move has to shorten an update by this share of it, so that rounding makes no circles.
constexpr double kShorter = 1 - 1e-9;
constexpr double kLongest = 9e9;  // seconds; more than any update lasts

// What a host has left, in bytes per second.
struct Rates {
  double transmit = 0, receive = 0, add = 0;
};

double left_of(const PlacementHost& host, HostResource resource) {
  const auto r = static_cast<size_t>(resource);
  if (host.capacity[r] == 0) return kForEver;
  return static_cast<double>(std::max<int64_t>(0, host.capacity[r] - host.used[r]));
}

Rates rates_left(const PlacementHost& host, double add_per_core) {
  return {left_of(host, HostResource::Transmit), left_of(host, HostResource::Receive),
          left_of(host, HostResource::Cores) / 1000 * add_per_core};
}

double seconds_of(Duration time) { return static_cast<double>(time.count()) / 1e9; }

// Seconds in which ports and processors may be busy with gradients.
double budget_of(const TreeInput& input) { return kMostPort * seconds_of(input.interval); }

// A gradient, or a sum, on its way to a node.
struct Arrival {
  double begun = 0;  // when its first bytes can come
  double at = 0;     // when its last ones can
};

// The seconds that a gradient takes of a host: of its port, and of its processors.
struct NodeTimes {
  double transmit = 0, receive = 0, add = 0;
};

NodeTimes times_of_node(const PlacementHost& host, const TreeInput& input) {
  const Rates rates = rates_left(host, input.add_per_core);
  const auto bytes = static_cast<double>(input.gradient.count);
  return {bytes / rates.transmit, bytes / rates.receive, bytes / rates.add};
}

// When a node has received and added all of these.
double gather(std::vector<Arrival> arrivals, const NodeTimes& node) {
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& left, const Arrival& right) {
    return std::tie(left.at, left.begun) < std::tie(right.at, right.begun);
  });
  double port = 0, added = 0;
  for (const Arrival& one : arrivals) {
    port = std::max(one.at, std::max(port, one.begun) + node.receive);
    added = std::max(added, port) + node.add;
  }
  return added;
}

// Seconds of an update: until the shard has the sum.
//
// Shapes: times and parents of each node; parents: other nodes, or kToShard
double seconds_of_tree(const std::vector<NodeTimes>& times, const NodeTimes& shard, double latency,
                       const std::vector<int32_t>& parents) {
  std::vector<std::vector<Arrival>> arrivals(parents.size());
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] == kToShard) continue;
    arrivals[static_cast<size_t>(parents[i])].push_back({latency, latency + times[i].transmit});
  }
  std::vector<Arrival> sums;
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] != kToShard) continue;
    const double begun = gather(std::move(arrivals[i]), times[i]) + latency;
    sums.push_back({begun, begun + times[i].transmit});
  }
  return gather(std::move(sums), shard);
}

Status check_input(const TreeInput& input) {
  const size_t replicas = input.replicas.size();
  if (replicas == 0 || replicas > kMostInTree) {
    return invalid(
        cat("an aggregation tree: expected 1 to ", kMostInTree, " replicas, found ", replicas));
  }
  const bool is_sound = input.gradient.count > 0 && input.add_per_core > 0 &&
                        input.interval.count() > 0 && input.latency.count() >= 0;
  if (is_sound) return ok();
  return invalid(
      cat("an aggregation tree: expected a gradient, a rate of adding and an interval "
          "above 0, and a latency of at least 0, found ",
          input.gradient.count, " bytes, ", input.add_per_core, " bytes/s, ",
          to_milliseconds(input.interval), " ms and ", to_milliseconds(input.latency), " ms"));
}

// Replicas are ranked by their hosts here, so that their order makes no difference.
class TreeMaker {
 public:
  explicit TreeMaker(const TreeInput& input)
      : input_(input), shard_(times_of_node(input.shard, input)), ranked_(input.replicas.size()) {
    std::iota(ranked_.begin(), ranked_.end(), size_t{0});
    std::stable_sort(ranked_.begin(), ranked_.end(), [&](size_t left, size_t right) {
      const PlacementHost& one = input.replicas[left];
      const PlacementHost& other = input.replicas[right];
      return std::tie(one.name, one.capacity, one.used) <
             std::tie(other.name, other.capacity, other.used);
    });
    for (const size_t replica : ranked_) {
      const PlacementHost& host = input.replicas[replica];
      times_.push_back(times_of_node(host, input));
      most_.push_back(most_gradients(host, input));
    }
    most_of_shard_ = most_gradients(input.shard, input);
    for (size_t i = 0; i < ranked_.size(); ++i) by_limit_.push_back(i);
    std::stable_sort(by_limit_.begin(), by_limit_.end(), [&](size_t left, size_t right) {
      if (most_[left] != most_[right]) return most_[left] > most_[right];
      return times_[left].transmit < times_[right].transmit;
    });
  }

  Result<AggregationTree> run() {
    if (const Status fault = check_senders(); !fault.ok()) return fault.error();
    const auto count = static_cast<int64_t>(ranked_.size());
    const int64_t most = std::min(count, most_of_shard_);
    for (int64_t members = 1; members < most;) {
      consider(static_cast<size_t>(members));
      members += members < static_cast<int64_t>(kMostMoved) ? 1 : members / 8;
    }
    if (most > 0) consider(static_cast<size_t>(most));
    if (parents_.empty()) return does_not_fit(static_cast<size_t>(most));
    if (ranked_.size() <= kMostMoved) move_replicas();
    AggregationTree tree;
    tree.parents = numbered(parents_);
    tree.time = price_tree(input_, tree.parents);
    return tree;
  }

 private:
  // Each replica's port sends one gradient in an update at least.
  Status check_senders() const {
    const double needed = static_cast<double>(input_.gradient.count) / budget_of(input_);
    for (const size_t replica : ranked_) {
      const PlacementHost& host = input_.replicas[replica];
      const double left = left_of(host, HostResource::Transmit);
      if (left >= needed) continue;
      const auto text = [](double amount) {
        return host_amount_text(HostResource::Transmit, static_cast<int64_t>(std::ceil(amount)));
      };
      return Error{Code::Infeasible, Reach::Call,
                   cat("host ", host.name,
                       " would be overloaded by the gradient of its replica: ", "it needs ",
                       text(needed), ", and ", text(left), " are left, ", text(needed - left),
                       " too few: free its port, or let replicas compute "
                       "longer for each update")};
    }
    return ok();
  }

  Error does_not_fit(size_t members) const {
    int64_t limit = 0;
    for (size_t i = 0; i < members; ++i) limit += most_[by_limit_[i]];
    return {Code::Infeasible, Reach::Call,
            cat("no tree of two levels takes the gradients of ", ranked_.size(),
                " replicas in an update: the shard's host ", input_.shard.name, " takes ",
                most_of_shard_, ", and the hosts of as many replicas take ", limit,
                " more: free their ports and processors, let replicas compute longer for each "
                "update, or use more shards")};
  }

  // By number of the replica.
  std::vector<int32_t> numbered(const std::vector<int32_t>& parents) const {
    std::vector<int32_t> all(parents.size(), kToShard);
    for (size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] == kToShard) continue;
      all[ranked_[i]] = static_cast<int32_t>(ranked_[static_cast<size_t>(parents[i])]);
    }
    return all;
  }

  double price(const std::vector<int32_t>& parents) const {
    return seconds_of_tree(times_, shard_, seconds_of(input_.latency), parents);
  }

  // The tree in which so many replicas send to the shard, if their hosts take the others.
  void consider(size_t members) {
    std::vector<int32_t> parents(ranked_.size(), kToShard);
    std::vector<size_t> others(by_limit_.begin() + static_cast<std::ptrdiff_t>(members),
                               by_limit_.end());
    std::stable_sort(others.begin(), others.end(), [&](size_t left, size_t right) {
      return times_[left].transmit > times_[right].transmit;
    });
    std::vector<double> ready(members, 0);  // about when each member has its sum
    std::vector<int64_t> children(members, 0);
    for (const size_t other : others) {
      std::optional<size_t> best;
      double best_ready = 0, earliest = 0;
      for (size_t i = 0; i < members; ++i) {
        const size_t member = by_limit_[i];
        if (children[i] >= most_[member]) continue;
        const double own = std::max(times_[member].receive, times_[member].add);
        const double then = std::max(ready[i] + own, times_[other].transmit);
        if (best && then + times_[member].transmit >= earliest) continue;
        best = i;
        best_ready = then;
        earliest = then + times_[member].transmit;
      }
      if (!best) return;
      ready[*best] = best_ready;
      ++children[*best];
      parents[other] = static_cast<int32_t>(by_limit_[*best]);
    }
    const double time = price(parents);
    if (!parents_.empty() && time >= time_) return;
    parents_ = std::move(parents);
    time_ = time;
  }

  bool has_children(size_t replica) const {
    return std::find(parents_.begin(), parents_.end(), static_cast<int32_t>(replica)) !=
           parents_.end();
  }

  // One more may send to this parent.
  bool takes_one_more(int32_t parent) const {
    const auto children = std::count(parents_.begin(), parents_.end(), parent);
    if (parent == kToShard) return children < most_of_shard_;
    const auto at = static_cast<size_t>(parent);
    return parents_[at] == kToShard && children < most_[at];
  }

  void move_replicas() {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t i = 0; i < parents_.size(); ++i) {
        if (!has_children(i)) has_changed = moved(i) || has_changed;
      }
    }
  }

  bool moved(size_t replica) {
    const auto count = static_cast<int32_t>(parents_.size());
    for (int32_t to = kToShard; to < count; ++to) {
      const int32_t from = parents_[replica];
      if (to == from || to == static_cast<int32_t>(replica) || !takes_one_more(to)) continue;
      parents_[replica] = to;
      const double time = price(parents_);
      if (time < kShorter * time_) {
        time_ = time;
        return true;
      }
      parents_[replica] = from;
    }
    return false;
  }

  const TreeInput& input_;
  const NodeTimes shard_;
  std::vector<size_t> ranked_;    // the replica of each rank
  std::vector<NodeTimes> times_;  // by rank, as all below
  std::vector<int64_t> most_;     // children
  int64_t most_of_shard_ = 0;
  std::vector<size_t> by_limit_;  // ranks, those that take the most first
  std::vector<int32_t> parents_;  // of the best tree so far; empty = there is none
  double time_ = 0;
};

}  // namespace

bool AggregationTree::is_flat() const {
  return std::all_of(parents.begin(), parents.end(),
                     [](int32_t parent) { return parent == kToShard; });
}

Duration price_tree(const TreeInput& input, const std::vector<int32_t>& parents) {
  CHECK(parents.size() == input.replicas.size(), "a parent for each replica");
  std::vector<NodeTimes> times;
  for (const PlacementHost& host : input.replicas) times.push_back(times_of_node(host, input));
  const double time =
      seconds_of_tree(times, times_of_node(input.shard, input), seconds_of(input.latency), parents);
  return time < kLongest ? Duration(std::llround(time * 1e9)) : Duration::max();
}

int64_t most_gradients(const PlacementHost& host, const TreeInput& input) {
  const Rates rates = rates_left(host, input.add_per_core);
  const double most = std::floor(std::min(rates.receive, rates.add) * budget_of(input) /
                                 static_cast<double>(input.gradient.count));
  return static_cast<int64_t>(std::min(most, static_cast<double>(kMostReplicas)));
}

Result<AggregationTree> make_tree(const TreeInput& input) {
  if (const Status fault = check_input(input); !fault.ok()) return fault.error();
  return TreeMaker(input).run();
}

}  // namespace tenuto
