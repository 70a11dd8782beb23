#include "adapt/route.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "adapt/mesh_bound.h"
#include "base/random.h"
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

// How a step is played.
struct Manner {
  bool global = false;     // each kind in the order of the micro-batch numbers
  int32_t look_ahead = 0;  // more than 0: fixed lists
  const char* how = "";
};

constexpr Manner kManners[] = {{true, 0, "in order"},
                               {false, 0, "as it comes"},
                               {false, 1, "as it comes, waiting for near gradients"},
                               {false, 2, "as it comes, waiting for gradients"}};

class Search {
 public:
  Search(const Mesh& mesh, const RouteEffort& effort)
      : mesh_(mesh), effort_(effort), bound_(mesh), costs_(mesh), player_(mesh) {
    best_.ready.time = best_.listed.time = Duration::max();
    best_.bound = bound_.least();
  }

  Routed run() {
    try_flows();
    const std::vector<int32_t> whole = whole_counts(mesh_);
    if (!whole.empty()) try_routing(whole_routing(mesh_, whole), "whole pipelines");
    try_routing(even_routing(mesh_), "all at home, the dead's shared out");
    move();
    return std::move(best_);
  }

 private:
  bool done() const { return best_.ready.time <= best_.bound; }

  void try_flows() {
    Counts counts;
    for (int32_t s = 0; s < mesh_.depth(); ++s) counts.push_back(bound_.balanced(s));
    try_counts(counts, "every stage balanced");
    for (const double allowed : kAllowed) {
      const Duration time(std::llround(static_cast<double>(best_.bound.count()) * allowed));
      if (time >= best_.listed.time) return;
      for (int32_t s = 0; s < mesh_.depth(); ++s) {
        for (int32_t i = 0; i < mesh_.width(s); ++i) {
          counts[at(s)][at(i)] = bound_.most_within(s, i, time);
        }
      }
      try_counts(counts, cat("what fits into ", fixed(allowed, 3), " of the bound"));
    }
  }

  void try_counts(const Counts& counts, const std::string& how) {
    if (done()) return;
    const auto flow = cheapest_flow(mesh_, costs_, counts);
    if (flow) try_routing(deal(mesh_, *flow), how);
  }

  void try_routing(Routing routing, const std::string& how) {
    if (done() || !seen_.insert(routing).second) return;
    for (const Manner& manner : kManners) try_manner(routing, manner, how);
  }

  // Plays the routing and keeps it if it is the best so far. Returns its time, or the longest there
  // is when it is seen to be no better.
  Duration try_manner(const Routing& routing, const Manner& manner, const std::string& how) {
    if (done()) return Duration::max();
    const bool ready = manner.look_ahead == 0;
    if (!ready && best_.listed.time <= best_.bound) return Duration::max();
    RoutedStep& best = ready ? best_.ready : best_.listed;
    std::optional<Duration> time;
    TaskLists lists;
    if (manner.global) {
      const Orders orders = global_orders(mesh_, routing);
      time = player_.time(routing, orders, best.time);
      if (time && *time < best.time) lists = *player_.lists(routing, orders);
    } else {
      lists = player_.as_they_come(routing, manner.look_ahead);
      time = ready ? player_.time(routing, orders_of(lists), best.time)
                   : player_.time(routing, lists, best.time);
    }
    if (!time || *time >= best.time) return time.value_or(Duration::max());
    const auto step = [&](Duration of) {
      return RoutedStep{routing, lists, of, cat(how, ", ", manner.how)};
    };
    if (!ready) {
      best = step(*time);
      return *time;
    }
    if (!manner.global) lists = *player_.lists(routing, orders_of(lists));
    best = step(*time);
    // As fixed lists the step may take another time only where the next one plays into it.
    const auto fixed = player_.time(routing, lists, best_.listed.time);
    if (fixed && *fixed < best_.listed.time) best_.listed = step(*fixed);
    return *time;
  }

  void move();
  void change(Routing& routing, Random& random) const;

  const Mesh& mesh_;
  const RouteEffort effort_;
  MeshBound bound_;
  WayCosts costs_;
  MeshPlayer player_;
  std::set<Routing> seen_;
  Routed best_;
};

// Gives one micro-batch, or two, other holders from a stage on, or at one stage.
void Search::change(Routing& routing, Random& random) const {
  const auto below = [&](int32_t bound) { return static_cast<int32_t>(random.below(bound)); };
  const int32_t first = below(mesh_.depth());
  const bool rest = below(2) == 0, swaps = below(2) == 0;
  const int32_t a = below(mesh_.micros);
  const int32_t b = std::min(mesh_.micros - 1, a + 1 + below(2 * mesh_.pipelines));
  const int32_t last = rest ? mesh_.depth() - 1 : first;
  const int32_t like = below(mesh_.micros);  // whose way is taken
  for (int32_t s = first; s <= last; ++s) {
    auto& own = routing[at(s)];
    if (swaps) {
      std::swap(own[at(a)], own[at(b)]);
    } else {
      own[at(a)] = rest ? own[at(like)] : below(mesh_.width(s));
    }
  }
}

void Search::move() {
  const int64_t ops = int64_t{3} * mesh_.depth() * mesh_.micros;
  const auto most = std::min<int64_t>(effort_.moves, effort_.played_ops / ops + 8);
  Random random(1);
  for (int64_t i = 0; i < most && !done(); ++i) {
    // In turns from the best of both; a routing is played in one manner, which changes too.
    RoutedStep& from = i % 2 == 0 ? best_.listed : best_.ready;
    Routing routing = from.routing;
    change(routing, random);
    if (!seen_.insert(routing).second) continue;
    const size_t first = i % 2 == 0 ? 1 : 0;
    try_manner(routing, kManners[first + static_cast<size_t>(random.below(2 + (i + 1) % 2))],
               "micro-batches moved");
  }
}

}  // namespace

Routed search_route(const Mesh& mesh, const RouteEffort& effort) {
  return Search(mesh, effort).run();
}

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

Plan with_routing(const Plan& plan, const Mesh& mesh, const RoutedStep& step, Dispatch dispatch) {
  Work work;
  work.lists.resize(plan.schedule.lists.size());
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    auto& holders = work.holders.emplace_back();
    for (int32_t i = 0; i < mesh.width(s); ++i) {
      const WorkerId worker = mesh.holder(s, i).worker;
      holders.push_back(worker);
      for (const Task& task : step.lists[at(s)][at(i)]) {
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
  Plan made = with_work(base, std::move(work));
  made.dispatch = dispatch;
  return made;
}

}  // namespace tenuto
