#include "adapt/layout/device_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Sums of the same rates, added up in different orders, differ by less than this share.
constexpr double kRounding = 1e-12;

bool clearly_less(double one, double other) { return one < other - kRounding * other; }

// The rates between all devices as weights of a graph. [one x devices + other]
std::vector<double> cut_weights(const LayoutProblem& problem) {
  const size_t count = at(problem.device_count());
  std::vector<double> weights(count * count, 0);
  double limited = 0;
  for (size_t one = 0; one < count; ++one) {
    for (size_t other = 0; other < one; ++other) {
      const double rate = problem.rate(static_cast<int32_t>(one), static_cast<int32_t>(other));
      weights[one * count + other] = weights[other * count + one] = rate;
      if (std::isfinite(rate)) limited += rate;
    }
  }
  for (double& weight : weights) {
    if (!std::isfinite(weight)) weight = limited;
  }
  return weights;
}

// Finds a minimum cut of some devices. It merges two vertices at a time, and keeps the number of
// the lower one, so that a vertex has the number of its lowest device.
class MinimumCut {
 public:
  // `devices`: ascending, at least two. `weights`: of all devices of the problem.
  MinimumCut(const DeviceOrder& devices, const std::vector<double>& weights, size_t device_count)
      : count_(devices.size()), weights_(count_ * count_), merged_(count_), vertices_(count_) {
    for (size_t i = 0; i < count_; ++i) {
      merged_[i] = {i};
      for (size_t j = 0; j < count_; ++j) {
        weights_[i * count_ + j] = weights[at(devices[i]) * device_count + at(devices[j])];
      }
    }
    std::iota(vertices_.begin(), vertices_.end(), size_t{0});
  }

  // For each device: whether it is on the first side of the cut, the one with the lowest device. Of
  // several minimum cuts it takes the one that the visits meet first.
  std::vector<bool> first_side() {
    double least = 0;
    std::vector<size_t> separate;
    while (vertices_.size() > 1) {
      const Visit visit = visit_all();
      if (separate.empty() || clearly_less(visit.cut, least)) {
        least = visit.cut;
        separate = merged_[visit.last];
      }
      merge(std::min(visit.before_last, visit.last), std::max(visit.before_last, visit.last));
    }
    // The vertex of the lowest device is visited first, so it is never the one that is separated.
    std::vector<bool> side(count_, true);
    for (const size_t i : separate) side[i] = false;
    return side;
  }

 private:
  // The end of a visit of all vertices.
  struct Visit {
    size_t before_last = 0, last = 0;
    double cut = 0;  // between the last vertex and all others
  };

  // Visits the lowest vertex, and then always the one with the largest weight to those visited, the
  // lowest of them in a tie. The cut that separates the last vertex is then a minimum cut between
  // the last two.
  Visit visit_all() const {
    Visit visit;
    visit.last = vertices_.front();
    std::vector<size_t> waiting(vertices_.begin() + 1, vertices_.end());
    std::vector<double> tied(count_, 0);  // of each vertex: weight to those visited
    while (!waiting.empty()) {
      auto next = waiting.begin();
      for (auto vertex = waiting.begin(); vertex != waiting.end(); ++vertex) {
        tied[*vertex] += weights_[visit.last * count_ + *vertex];
        if (clearly_less(tied[*next], tied[*vertex])) next = vertex;
      }
      visit = {visit.last, *next, tied[*next]};
      waiting.erase(next);
    }
    return visit;
  }

  void merge(size_t kept, size_t gone) {
    for (const size_t vertex : vertices_) {
      if (vertex == kept || vertex == gone) continue;
      const double weight = weights_[gone * count_ + vertex];
      weights_[kept * count_ + vertex] += weight;
      weights_[vertex * count_ + kept] += weight;
    }
    merged_[kept].insert(merged_[kept].end(), merged_[gone].begin(), merged_[gone].end());
    vertices_.erase(std::lower_bound(vertices_.begin(), vertices_.end(), gone));
  }

  size_t count_;
  std::vector<double> weights_;              // between vertices, [one x count + other]
  std::vector<std::vector<size_t>> merged_;  // the devices of each vertex
  std::vector<size_t> vertices_;             // not merged into others, ascending
};

// Two devices and the rate between them.
struct DevicePair {
  int32_t lower = 0, higher = 0;
  double rate = 0;
};

// True when groups are joined by `one` before they are joined by `other`: by the faster pair, in a
// tie by the one with the lower devices.
bool precedes(const DevicePair& one, const DevicePair& other) {
  return std::tie(other.rate, one.lower, one.higher) <
         std::tie(one.rate, other.lower, other.higher);
}

// The pairs by which groups are joined, in that order. They are the edges of a maximum spanning
// tree. The tree grows from device 0 device by device: unlike sorting all pairs, this needs memory
// for V of them only.
std::vector<DevicePair> joining_pairs(const LayoutProblem& problem) {
  // For each device outside the tree, the first pair that joins it with the tree.
  std::vector<std::pair<int32_t, DevicePair>> outside;
  for (int32_t device = 1; device < problem.device_count(); ++device) {
    outside.push_back({device, {0, device, problem.rate(0, device)}});
  }
  std::vector<DevicePair> tree;
  std::vector<double> rates;
  while (!outside.empty()) {
    auto next = outside.begin();
    for (auto place = outside.begin(); place != outside.end(); ++place) {
      if (precedes(place->second, next->second)) next = place;
    }
    const int32_t added = next->first;
    tree.push_back(next->second);
    *next = outside.back();
    outside.pop_back();
    problem.rates_from(added, rates);
    for (auto& [device, best] : outside) {
      const double rate = rates[at(device)];
      if (rate < best.rate) continue;
      const DevicePair pair{std::min(added, device), std::max(added, device), rate};
      if (precedes(pair, best)) best = pair;
    }
  }
  std::sort(tree.begin(), tree.end(), precedes);
  return tree;
}

// How two groups are put one behind the other.
struct Arrangement {
  bool exchanged = false;  // the second group stands in front
  bool first_turned = false, second_turned = false;
  double seam = 0;  // rate between the two devices where the groups meet
  // The first devices of the group in front and of the other one.
  int32_t front = 0, behind = 0;
};

// Puts two groups one behind the other with the fastest rate at the seam; in a tie with the lowest
// first device, then with the lowest device behind the seam.
DeviceOrder join(const LayoutProblem& problem, DeviceOrder first, DeviceOrder second) {
  std::optional<Arrangement> best;
  for (const bool exchanged : {false, true}) {
    for (const bool first_turned : {false, true}) {
      for (const bool second_turned : {false, true}) {
        const auto ends = [](const DeviceOrder& group, bool turned) {
          return turned ? std::pair(group.back(), group.front())
                        : std::pair(group.front(), group.back());
        };
        auto front = ends(first, first_turned), behind = ends(second, second_turned);
        if (exchanged) std::swap(front, behind);
        const Arrangement arrangement{exchanged,     first_turned,
                                      second_turned, problem.rate(front.second, behind.first),
                                      front.first,   behind.first};
        if (!best || std::tie(best->seam, arrangement.front, arrangement.behind) <
                         std::tie(arrangement.seam, best->front, best->behind)) {
          best = arrangement;
        }
      }
    }
  }
  if (best->first_turned) std::reverse(first.begin(), first.end());
  if (best->second_turned) std::reverse(second.begin(), second.end());
  if (best->exchanged) std::swap(first, second);
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

DeviceOrder natural_order(const LayoutProblem& problem) {
  DeviceOrder order(at(problem.device_count()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

DeviceOrder min_cut_order(const LayoutProblem& problem) {
  const std::vector<double> weights = cut_weights(problem);
  DeviceOrder order;
  // Parts to be split, the first one at the end; each ascending.
  std::vector<DeviceOrder> parts = {natural_order(problem)};
  while (!parts.empty()) {
    const DeviceOrder part = std::move(parts.back());
    parts.pop_back();
    if (part.size() == 1) {
      order.push_back(part.front());
      continue;
    }
    const std::vector<bool> side =
        MinimumCut(part, weights, at(problem.device_count())).first_side();
    DeviceOrder first, second;
    for (size_t i = 0; i < part.size(); ++i) (side[i] ? first : second).push_back(part[i]);
    parts.push_back(std::move(second));
    parts.push_back(std::move(first));
  }
  return order;
}

DeviceOrder linkage_order(const LayoutProblem& problem) {
  const size_t count = at(problem.device_count());
  std::vector<DeviceOrder> groups(count);
  std::vector<size_t> group(count);  // of each device
  for (size_t device = 0; device < count; ++device) {
    groups[device] = {static_cast<int32_t>(device)};
    group[device] = device;
  }
  for (const DevicePair& pair : joining_pairs(problem)) {
    const size_t kept = group[at(pair.lower)], gone = group[at(pair.higher)];
    for (const int32_t device : groups[gone]) group[at(device)] = kept;
    groups[kept] = join(problem, std::move(groups[kept]), std::move(groups[gone]));
  }
  return std::move(groups[group[0]]);
}

}  // namespace tenuto
