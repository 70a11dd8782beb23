#include "adapt/flow.h"

#include <algorithm>
#include <cmath>

namespace tenuto {

namespace {

constexpr int64_t kFar = INT64_MAX / 4;
constexpr int64_t kUnit = 1000;     // cost of a start away from home
constexpr double kDelay = 1000;     // cost of a delay of one forward, in units
constexpr int64_t kCrossing = 40;   // cost of leaving the pipeline, in units
constexpr double kMostDelay = 1e5;  // in forwards: longer delays cost no more

size_t at(int64_t index) { return static_cast<size_t>(index); }

// In the flow network each holder is an edge whose capacity is its count. This is one of its ends.
struct Node {
  int64_t cost = kFar;
  int32_t from = -1;    // holder of the stage before or behind
  bool inside = false;  // reached from the holder's other end
};

class ShortestPaths {
 public:
  ShortestPaths(const Mesh& mesh, const WayCosts& costs, const Counts& counts)
      : mesh_(mesh), counts_(counts), starts_(at(mesh.width(0)), 0), home_(at(mesh.width(0)), 0) {
    for (int32_t s = 0; s < mesh.depth(); ++s) {
      in_.emplace_back(at(mesh.width(s)));
      out_.emplace_back(at(mesh.width(s)));
      through_.emplace_back(at(mesh.width(s)), 0);
    }
    for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
      over_.emplace_back(mesh.ways[at(s)].size(), 0);
      auto& of = costs_.emplace_back();
      for (int32_t i = 0; i < mesh.width(s); ++i) {
        for (int32_t j = 0; j < mesh.width(s + 1); ++j) of.push_back(costs.of(s, i, j));
      }
    }
    for (int32_t i = 0; i < mesh.width(0); ++i) {
      const int32_t pipeline = mesh.holder(0, i).pipeline;
      home_[at(i)] = (mesh.micros - pipeline + mesh.pipelines - 1) / mesh.pipelines;
    }
  }

  std::optional<Flow> run() {
    for (int32_t left = mesh_.micros; left > 0;) {
      find();
      const int32_t most = send(left);
      if (most == 0) return std::nullopt;
      left -= most;
    }
    return Flow{std::move(starts_), std::move(over_)};
  }

 private:
  // Finds the costs of the cheapest ways from the source: down the stages, then up again where flow
  // can be taken back, until nothing gets cheaper.
  void find() {
    for (auto* ends : {&in_, &out_}) {
      for (auto& of : *ends) std::fill(of.begin(), of.end(), Node{});
    }
    for (int32_t i = 0; i < mesh_.width(0); ++i) {
      in_[0][at(i)].cost = starts_[at(i)] < home_[at(i)] ? 0 : kUnit;
    }
    do {
      for (int32_t s = 0; s < mesh_.depth(); ++s) go_down(s);
    } while (go_up());
  }

  void go_down(int32_t s) {
    const int32_t width = mesh_.width(s);
    for (int32_t i = 0; s > 0 && i < mesh_.width(s - 1); ++i) {
      const int64_t before = out_[at(s) - 1][at(i)].cost;
      if (before >= kFar) continue;
      const int64_t* costs = costs_[at(s) - 1].data() + int64_t{i} * width;
      for (int32_t j = 0; j < width; ++j) {
        Node& node = in_[at(s)][at(j)];
        if (before + costs[j] < node.cost) node = {before + costs[j], i, false};
      }
    }
    for (int32_t i = 0; i < width; ++i) {
      const Node& in = in_[at(s)][at(i)];
      Node& out = out_[at(s)][at(i)];
      const bool open = through_[at(s)][at(i)] < counts_[at(s)][at(i)];
      if (open && in.cost < out.cost) out = {in.cost, -1, true};
    }
  }

  // True when a way that takes flow back is cheaper.
  bool go_up() {
    bool cheaper = false;
    for (int32_t s = mesh_.depth(); s-- > 0;) {
      for (int32_t i = 0; i < mesh_.width(s); ++i) {
        if (through_[at(s)][at(i)] == 0) continue;
        Node& out = out_[at(s)][at(i)];
        const int32_t width = s + 1 < mesh_.depth() ? mesh_.width(s + 1) : 0;
        for (int32_t j = 0; j < width; ++j) {
          const auto edge = at(int64_t{i} * width + j);
          if (over_[at(s)][edge] == 0) continue;
          const int64_t cost = in_[at(s) + 1][at(j)].cost - costs_[at(s)][edge];
          if (cost < out.cost) {
            out = {cost, j, false};
            cheaper = true;
          }
        }
        Node& in = in_[at(s)][at(i)];
        if (out.cost < in.cost) {
          in = {out.cost, -1, true};
          cheaper = true;
        }
      }
    }
    return cheaper;
  }

  // Walks the cheapest path back from the last stage. With `by` = 0 only finds how much it carries.
  int32_t walk(int32_t last, int32_t by) {
    int32_t most = INT32_MAX;
    int32_t s = mesh_.depth() - 1, i = last;
    bool is_out = true;
    for (;;) {
      const Node& node = (is_out ? out_ : in_)[at(s)][at(i)];
      int32_t& through = through_[at(s)][at(i)];
      if (node.inside) {
        most = std::min(most, is_out ? counts_[at(s)][at(i)] - through : through);
        through += is_out ? by : -by;
        is_out = !is_out;
      } else if (is_out) {  // flow on the edge to holder `from` of the next stage is taken back
        int32_t& over = over_[at(s)][at(int64_t{i} * mesh_.width(s + 1) + node.from)];
        most = std::min(most, over);
        over -= by;
        ++s;
        i = node.from;
        is_out = false;
      } else if (s > 0) {
        over_[at(s) - 1][at(int64_t{node.from} * mesh_.width(s) + i)] += by;
        --s;
        i = node.from;
        is_out = true;
      } else {
        const int32_t home = home_[at(i)] - starts_[at(i)];
        most = home > 0 ? std::min(most, home) : most;
        starts_[at(i)] += by;
        return most;
      }
    }
  }

  int32_t send(int32_t left) {
    const auto& ends = out_.back();
    const auto last = std::min_element(
        ends.begin(), ends.end(), [](const Node& a, const Node& b) { return a.cost < b.cost; });
    if (last->cost >= kFar) return 0;
    const auto place = static_cast<int32_t>(last - ends.begin());
    const int32_t most = std::min(left, walk(place, 0));
    walk(place, most);
    return most;
  }

  const Mesh& mesh_;
  const Counts& counts_;
  std::vector<std::vector<Node>> in_, out_;
  std::vector<std::vector<int32_t>> through_, over_;
  std::vector<std::vector<int64_t>> costs_;
  std::vector<int32_t> starts_, home_;
};

// Deals the micro-batches of the first stage: at home as long as home has less than its share.
std::vector<int32_t> deal_starts(const Mesh& mesh, const std::vector<int32_t>& starts) {
  std::vector<int32_t> given(starts.size(), 0), first;
  std::vector<int32_t> home(at(mesh.pipelines), -1);
  for (int32_t i = 0; i < mesh.width(0); ++i) home[at(mesh.holder(0, i).pipeline)] = i;
  for (int32_t m = 0; m < mesh.micros; ++m) {
    const auto behind = [&](int32_t i) {
      return int64_t{starts[at(i)]} * (m + 1) - int64_t{given[at(i)]} * mesh.micros;
    };
    int32_t to = home[at(m % mesh.pipelines)];
    if (to < 0 || behind(to) <= 0 || given[at(to)] == starts[at(to)]) {
      to = -1;
      for (int32_t i = 0; i < mesh.width(0); ++i) {
        if (given[at(i)] == starts[at(i)]) continue;
        if (to < 0 || behind(i) > behind(to)) to = i;
      }
    }
    ++given[at(to)];
    first.push_back(to);
  }
  return first;
}

}  // namespace

WayCosts::WayCosts(const Mesh& mesh) : mesh_(mesh) {
  std::vector<Duration> forwards;
  for (const auto& stage : mesh.stages) {
    for (const Holder& holder : stage) forwards.push_back(holder.forward);
  }
  const auto middle = forwards.begin() + static_cast<std::ptrdiff_t>(forwards.size() / 2);
  std::nth_element(forwards.begin(), middle, forwards.end());
  forward_ = std::max(1.0, static_cast<double>(middle->count()));
}

int64_t WayCosts::of(int32_t stage, int32_t from, int32_t to) const {
  const Way& way = mesh_.way(stage, from, to);
  const double delay =
      std::min(kMostDelay, static_cast<double>((way.there() + way.back()).count()) / forward_);
  const bool crosses = mesh_.holder(stage, from).pipeline != mesh_.holder(stage + 1, to).pipeline;
  return std::llround(kDelay * delay * delay * kUnit) + (crosses ? kCrossing * kUnit : 0);
}

std::optional<Flow> cheapest_flow(const Mesh& mesh, const WayCosts& costs, const Counts& counts) {
  return ShortestPaths(mesh, costs, counts).run();
}

Routing assign_micros(const Mesh& mesh, const Flow& flow) {
  Routing routing = {deal_starts(mesh, flow.starts)};
  std::vector<int32_t> total = flow.starts;
  for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
    const int32_t width = mesh.width(s + 1);
    std::vector<int32_t> sent(flow.over[at(s)].size(), 0), seen(total.size(), 0);
    auto& next = routing.emplace_back();
    for (int32_t m = 0; m < mesh.micros; ++m) {
      const int32_t i = routing[at(s)][at(m)];
      ++seen[at(i)];
      const auto edge = [&](int32_t j) { return at(int64_t{i} * width + j); };
      const auto behind = [&](int32_t j) {
        return int64_t{flow.over[at(s)][edge(j)]} * seen[at(i)] -
               int64_t{sent[edge(j)]} * total[at(i)];
      };
      int32_t to = -1;
      for (int32_t j = 0; j < width; ++j) {
        if (sent[edge(j)] == flow.over[at(s)][edge(j)]) continue;
        const bool straight = mesh.holder(s, i).pipeline == mesh.holder(s + 1, j).pipeline;
        if (to < 0 || behind(j) > behind(to) || (behind(j) == behind(to) && straight)) to = j;
      }
      ++sent[edge(to)];
      next.push_back(to);
    }
    total.assign(at(width), 0);
    for (const int32_t j : next) ++total[at(j)];
  }
  return routing;
}

}  // namespace tenuto
