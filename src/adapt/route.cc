#include "adapt/route.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "adapt/mesh_bound.h"
#include "base/check.h"
#include "base/text.h"
#include "plan/routed.h"

namespace tenuto {

namespace {

// Allowed times, as multiples of the bound.
constexpr double kAllowed[] = {1,    1.015, 1.03, 1.045, 1.06, 1.08, 1.1,  1.12,
                               1.16, 1.2,   1.27, 1.35,  1.5,  1.75, 2.25, 3};

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The holder of a stage that belongs to a pipeline; -1 = it is missing.
int32_t holder_at_home(const Mesh& mesh, int32_t stage, int32_t pipeline) {
  for (int32_t i = 0; i < mesh.width(stage); ++i) {
    if (mesh.holder(stage, i).pipeline == pipeline) return i;
  }
  return -1;
}

// The holders of each pipeline; empty where one is missing.
std::vector<std::vector<int32_t>> pipelines_of(const Mesh& mesh) {
  std::vector<std::vector<int32_t>> all;
  for (int32_t p = 0; p < mesh.pipelines; ++p) {
    auto& own = all.emplace_back();
    for (int32_t s = 0; s < mesh.depth(); ++s) own.push_back(holder_at_home(mesh, s, p));
    if (std::find(own.begin(), own.end(), -1) != own.end()) own.clear();
  }
  return all;
}

// The mesh of one pipeline alone.
Mesh alone(const Mesh& mesh, const std::vector<int32_t>& holders) {
  Mesh line;
  line.micros = mesh.micros;
  line.pace = mesh.pace;
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    line.stages.push_back({mesh.holder(s, holders[at(s)])});
    if (s > 0) line.ways.push_back({mesh.way(s - 1, holders[at(s) - 1], holders[at(s)])});
  }
  return line;
}

class Search {
 public:
  explicit Search(const Mesh& mesh) : mesh_(mesh), bound_(mesh), costs_(mesh), player_(mesh) {
    best_.time = Duration::max();
    best_.bound = bound_.least();
  }

  Routed run() {
    Counts counts;
    for (int32_t s = 0; s < mesh_.depth(); ++s) counts.push_back(bound_.balanced(s));
    try_counts(counts, "every stage balanced");
    for (const double allowed : kAllowed) {
      const Duration time(
          std::llround(static_cast<double>(best_.bound.count()) * allowed));
      if (time >= best_.time) break;
      for (int32_t s = 0; s < mesh_.depth(); ++s) {
        for (int32_t i = 0; i < mesh_.width(s); ++i) {
          counts[at(s)][at(i)] = bound_.most_within(s, i, time);
        }
      }
      try_counts(counts, cat("what fits into ", fixed(allowed, 3), " of the bound"));
    }
    const std::vector<int32_t> whole = whole_counts(mesh_);
    if (!whole.empty()) try_routing(whole_routing(mesh_, whole), "whole pipelines");
    try_routing(even_routing(mesh_), "all at home, the dead's shared out");
    return std::move(best_);
  }

 private:
  void try_counts(const Counts& counts, const std::string& how) {
    if (best_.time <= best_.bound) return;
    const auto flow = cheapest_flow(mesh_, costs_, counts);
    if (flow) try_routing(deal(mesh_, *flow), how);
  }

  void try_routing(Routing routing, const std::string& how) {
    if (best_.time <= best_.bound || !seen_.insert(routing).second) return;
    keep(routing, global_orders(mesh_, routing), how);
    if (best_.time <= best_.bound) return;
    keep(routing, player_.as_they_come(routing), how);
  }

  void keep(const Routing& routing, Orders orders, const std::string& how) {
    const auto time = player_.time(routing, orders, best_.time);
    if (!time || *time >= best_.time) return;
    best_.time = *time;
    best_.routing = routing;
    best_.orders = std::move(orders);
    best_.how = how;
  }

  const Mesh& mesh_;
  MeshBound bound_;
  WayCosts costs_;
  MeshPlayer player_;
  std::set<Routing> seen_;
  Routed best_;
};

}  // namespace

Routed search_route(const Mesh& mesh) { return Search(mesh).run(); }

Routing even_routing(const Mesh& mesh) {
  Routing routing;
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    auto& own = routing.emplace_back();
    int32_t guests = 0;  // one count for all dead of a stage
    for (int32_t m = 0; m < mesh.micros; ++m) {
      const int32_t home = holder_at_home(mesh, s, m % mesh.pipelines);
      own.push_back(home >= 0 ? home : guests++ % mesh.width(s));
    }
  }
  return routing;
}

std::vector<int32_t> whole_counts(const Mesh& mesh) {
  const auto pipelines = pipelines_of(mesh);
  std::vector<Mesh> lines(pipelines.size());
  std::vector<std::optional<MeshBound>> bounds(pipelines.size());
  const auto time = [&](size_t p, int32_t micros) {
    Duration most{};
    for (int32_t s = 0; s < mesh.depth(); ++s) most = std::max(most, bounds[p]->of(s, 0, micros));
    return most;
  };
  using Next = std::pair<Duration, size_t>;  // time with one more, pipeline
  std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
  for (size_t p = 0; p < pipelines.size(); ++p) {
    if (pipelines[p].empty()) continue;
    lines[p] = alone(mesh, pipelines[p]);
    bounds[p].emplace(lines[p]);
    open.emplace(time(p, 1), p);
  }
  if (open.empty()) return {};
  std::vector<int32_t> counts(pipelines.size(), 0);
  for (int32_t m = 0; m < mesh.micros; ++m) {
    const size_t p = open.top().second;
    open.pop();
    open.emplace(time(p, ++counts[p] + 1), p);
  }
  return counts;
}

Routing whole_routing(const Mesh& mesh, const std::vector<int32_t>& counts) {
  const auto pipelines = pipelines_of(mesh);
  Flow flow;
  flow.starts.assign(at(mesh.width(0)), 0);
  for (const auto& ways : mesh.ways) flow.over.emplace_back(ways.size(), 0);
  for (size_t p = 0; p < pipelines.size(); ++p) {
    if (counts[p] == 0) continue;
    const std::vector<int32_t>& own = pipelines[p];
    flow.starts[at(own[0])] = counts[p];
    for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
      flow.over[at(s)][at(own[at(s)] * mesh.width(s + 1) + own[at(s) + 1])] = counts[p];
    }
  }
  return deal(mesh, flow);
}

Plan with_routing(const Plan& plan, const Mesh& mesh, const Routed& routed) {
  MeshPlayer player(mesh);
  const auto played = player.play(routed.routing, routed.orders);
  CHECK(played.has_value(), "what was played before stands still");
  Work work;
  work.lists.resize(plan.schedule.lists.size());
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    auto& holders = work.holders.emplace_back();
    for (int32_t i = 0; i < mesh.width(s); ++i) {
      const WorkerId worker = mesh.holder(s, i).worker;
      holders.push_back(worker);
      for (const Task& task : played->lists[at(s)][at(i)]) {
        Op op;
        op.kind = task.kind;
        op.stage = {s};
        op.micro = {task.micro};
        work.lists[at(worker.value)].push_back(op);
      }
    }
  }
  Plan base = plan;
  base.order = "auto";
  base.limits.resize(plan.schedule.lists.size());
  for (Limit& limit : base.limits) limit = {0, 0, limit.room};
  return with_work(base, std::move(work));
}

}  // namespace tenuto
