#include "monitor/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/quantile.h"

namespace tenuto {
namespace {

using Group = std::vector<int32_t>;  // workers, ascending

// A link is an exception if its rate is more than this many times the median rate between its two
// places, or if the median is more than this many times its rate.
constexpr double kFits = 1.25;

// The rate of the faster direction; an unlimited rate is higher than all others.
double rate_between(const LinkTable& links, int32_t one, int32_t other) {
  const auto rate = [&](int32_t from, int32_t to) {
    const double given = links.at({from}, {to}).link.bytes_per_second;
    return given > 0 ? given : 1e30;
  };
  return std::max(rate(one, other), rate(other, one));
}

struct Pair {
  double rate = 0;
  int32_t one = 0, other = 0;
};

// Disjoint groups of workers, which can be merged (union-find).
class Groups {
 public:
  explicit Groups(int32_t workers) : parent_(static_cast<size_t>(workers)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int32_t find(int32_t worker) {
    int32_t& parent = parent_[static_cast<size_t>(worker)];
    return parent == worker ? worker : parent = find(parent);
  }
  // Merges the groups of two workers; false if they are in one group already.
  bool join(int32_t one, int32_t other) {
    const int32_t left = find(one), right = find(other);
    parent_[static_cast<size_t>(std::max(left, right))] = std::min(left, right);
    return left != right;
  }

 private:
  std::vector<int32_t> parent_;
};

std::vector<Pair> pairs_of(const LinkTable& links, const Group& group) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = i + 1; j < group.size(); ++j) {
      pairs.push_back({rate_between(links, group[i], group[j]), group[i], group[j]});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& left, const Pair& right) {
    return std::tuple(-left.rate, left.one, left.other) <
           std::tuple(-right.rate, right.one, right.other);
  });
  return pairs;
}

// Divides a group by single linkage; returns the whole group when its links are of one kind.
std::vector<Group> parts_of(const LinkTable& links, const Group& group) {
  const std::vector<Pair> pairs = pairs_of(links, group);
  if (pairs.empty() || pairs.front().rate < kSameRates * pairs.back().rate) return {group};
  Groups joined(links.workers());
  std::vector<Pair> tree;
  for (const Pair& pair : pairs) {
    if (joined.join(pair.one, pair.other)) tree.push_back(pair);
  }
  size_t cut = 0;  // so many links, the fastest of the tree, are inside the parts
  double largest = kSameRates;
  for (size_t i = 1; i < tree.size(); ++i) {
    const double ratio = tree[i - 1].rate / tree[i].rate;
    if (ratio < largest) continue;
    largest = ratio;
    cut = i;
  }
  if (cut == 0) return {group};
  Groups some(links.workers());
  for (size_t i = 0; i < cut; ++i) some.join(tree[i].one, tree[i].other);
  std::map<int32_t, Group> parts;
  for (const int32_t worker : group) parts[some.find(worker)].push_back(worker);
  std::vector<Group> all;
  for (auto& [first, part] : parts) all.push_back(std::move(part));
  return all;
}

void divide(const LinkTable& links, const Group& group, std::vector<Group>& places) {
  const std::vector<Group> parts = parts_of(links, group);
  if (parts.size() == 1) {
    places.push_back(group);
    return;
  }
  for (const Group& part : parts) divide(links, part, places);
}

double median_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

}  // namespace

std::vector<int32_t> find_places(const LinkTable& links) {
  Group all(static_cast<size_t>(links.workers()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Group> places;
  divide(links, all, places);
  std::sort(places.begin(), places.end());
  std::vector<int32_t> place(all.size());
  for (size_t p = 0; p < places.size(); ++p) {
    for (const int32_t worker : places[p]) {
      place[static_cast<size_t>(worker)] = static_cast<int32_t>(p);
    }
  }
  return place;
}

Cluster cluster_of_links(const LinkTable& links) {
  Cluster cluster;
  cluster.workers.resize(static_cast<size_t>(links.workers()));
  cluster.place = find_places(links);
  const auto places =
      cluster.place.empty()
          ? size_t{1}
          : static_cast<size_t>(1 + *std::max_element(cluster.place.begin(), cluster.place.end()));
  cluster.between.assign(places, std::vector<Link>(places));
  std::map<std::pair<int32_t, int32_t>, std::vector<std::pair<WorkerId, WorkerId>>> classes;
  for (int32_t from = 0; from < links.workers(); ++from) {
    for (int32_t to = 0; to < links.workers(); ++to) {
      const auto place_of = [&](int32_t w) { return cluster.place[static_cast<size_t>(w)]; };
      if (from != to) classes[{place_of(from), place_of(to)}].push_back({{from}, {to}});
    }
  }
  for (const auto& [ends, pairs] : classes) {
    std::vector<double> rates;
    std::vector<Duration> latencies;
    for (const auto& [from, to] : pairs) {
      rates.push_back(links.at(from, to).link.bytes_per_second);
      latencies.push_back(links.at(from, to).link.latency);
    }
    const Link usual{quantile(latencies, 0.5), median_of(rates)};
    cluster.between[static_cast<size_t>(ends.first)][static_cast<size_t>(ends.second)] = usual;
    for (const auto& [from, to] : pairs) {
      const double rate = links.at(from, to).link.bytes_per_second;
      const bool fits =
          rate <= kFits * usual.bytes_per_second && usual.bytes_per_second <= kFits * rate;
      if (!fits) cluster.exceptions[{from, to}] = links.at(from, to).link;
    }
  }
  return cluster;
}

}  // namespace tenuto
