#include "adapt/route.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "adapt/mesh_bound.h"
#include "base/contains.h"
#include "base/random.h"
#include "base/text.h"
#include "plan/routed.h"

namespace tenuto {

namespace {

// Allowed times, as multiples of the bound.
constexpr double kAllowed[] = {1,    1.015, 1.03, 1.045, 1.06, 1.08, 1.1,  1.12,
                               1.16, 1.2,   1.27, 1.35,  1.5,  1.75, 2.25, 3};

constexpr Duration kLongest = Duration::max();

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
    if (contains(own, -1)) own.clear();
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

// How many micro-batches a holder may hold: as memory allows, or S - s at stage s of S.
enum class Held : uint8_t { Memory, Falling };

// How a step is played.
struct Manner {
  bool global = false;  // each kind in the order of the micro-batch numbers
  Patience patience;    // `guests` in half rounds; a round is a micro-batch of each pipeline
  Held held = Held::Memory;
  const char* how = "";
};

constexpr Manner kManners[] = {
    {true, {}, Held::Memory, "in order"},
    {false, {}, Held::Memory, "as it comes"},
};
// For the few fastest routings.
constexpr size_t kFew = 3;
// The most plays of a step in these manners, all together; timing a period takes several plays.
constexpr int64_t kMorePlays = 48, kMorePlaysForPeriods = 72;
// A step is near the best one if it is longer by at most this share. Only such routings are among
// the few.
constexpr double kNear = 0.02;
constexpr Manner kMoreManners[] = {
    {false, {1, 3}, Held::Memory, "three weight gradients before forwards"},
    {false, {0, 0, -2}, Held::Memory, "guests a round earlier"},
    {false, {0, 0, 2}, Held::Memory, "guests a round later"},
    {false, {1, 0}, Held::Memory, "waiting for near gradients"},
    {false, {0, 2, 6}, Held::Memory, "two weight gradients first, guests three rounds later"},
    {false, {0, 4, -4}, Held::Memory, "four weight gradients first, guests two rounds earlier"},
    {false, {0, 0, -4}, Held::Memory, "guests two rounds earlier"},
    {false, {0, 0, 4}, Held::Memory, "guests two rounds later"},
    {false, {0, 1, 2}, Held::Memory, "weight gradients first, guests a round later"},
    {false, {0, 1, 4}, Held::Memory, "weight gradients first, guests two rounds later"},
    {true, {}, Held::Falling, "in order, holding fewer from stage to stage"},
};

class Search {
 public:
  Search(const Mesh& mesh, const RouteEffort& effort, Watch* watch)
      : mesh_(mesh), effort_(effort), watch_(watch), bound_(mesh), costs_(mesh), player_(mesh) {
    best_.ready.time = best_.listed.time = kLongest;
    best_.bound = bound_.least();
  }

  Routed run() {
    try_flows();
    const std::vector<int32_t> whole = whole_counts(mesh_);
    if (!whole.empty()) try_routing(whole_routing(mesh_, whole), "whole pipelines");
    try_routing(
        even_routing(mesh_),
        "all in their own pipelines, the micro-batches of dead workers divided among the others");
    try_more_manners();
    move();
    return std::move(best_);
  }

 private:
  // True when the search ends: nothing better exists, or no time is left.
  bool done() const {
    if (best_.ready.time == kLongest) return false;
    return best_.ready.time <= best_.bound || is_over(watch_);
  }

  void try_flows() {
    Counts counts;
    for (int32_t s = 0; s < mesh_.depth(); ++s) counts.push_back(bound_.balanced(s));
    try_counts(counts, "every stage balanced");
    for (const double allowed : kAllowed) {
      const Duration time(std::llround(static_cast<double>(best_.bound.count()) * allowed));
      if (time >= best_.best().time) return;
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
    if (flow) try_routing(assign_micros(mesh_, *flow), how);
  }

  void try_routing(Routing routing, const std::string& how) {
    if (done() || static_cast<int32_t>(fastest_.size()) >= effort_.routings) return;
    if (!seen_.insert(routing).second) return;
    count_item(watch_);
    Duration time = Duration::max();
    for (const Manner& manner : kManners) {
      if (done()) break;
      time = std::min(time, try_manner(routing, manner, how, limit()));
    }
    fastest_.push_back({std::move(routing), {}, time, how, {}});
  }

  // While micro-batches are moved, a step of equal time also replaces the best.
  bool is_kept(Duration time, const RoutedStep& best) const {
    return time < best.time || (moving_ && time == best.time);
  }

  // The longest time that is near `time`.
  static Duration near(Duration time) {
    if (time == kLongest) return kLongest;
    return time + std::chrono::duration_cast<Duration>(time * kNear);
  }

  // The time that a routing must beat to be one of the few fastest.
  Duration limit() const {
    std::vector<Duration> times;
    for (const RoutedStep& step : fastest_) times.push_back(step.time);
    if (times.size() < kFew) return kLongest;
    const auto last = times.begin() + (kFew - 1);
    std::nth_element(times.begin(), last, times.end());
    return *last;
  }

  void try_more_manners() {
    if (done() || !effort_.manners) return;
    std::stable_sort(fastest_.begin(), fastest_.end(),
                     [](const RoutedStep& a, const RoutedStep& b) { return a.time < b.time; });
    fastest_.resize(std::min(fastest_.size(), kFew));
    const int64_t plays = mesh_.pace == Pace::Barrier ? kMorePlays : kMorePlaysForPeriods;
    const int64_t until = player_.played_ops() + plays * ops_;
    for (const RoutedStep& step : fastest_) {
      if (step.time > near(best_.ready.time)) return;
      for (const Manner& manner : kMoreManners) {
        if (done() || player_.played_ops() > until) return;
        try_manner(step.routing, manner, step.how, best_.ready.time);
      }
    }
  }

  std::vector<int32_t> most_of(Held held) const {
    std::vector<int32_t> most;
    for (int32_t s = 0; held == Held::Falling && s < mesh_.depth(); ++s) {
      most.push_back(mesh_.depth() - s);
    }
    return most;
  }

  // Plays the routing in one manner and keeps what is the best so far: its orders under ready
  // dispatch, and its lists. Returns the time under ready dispatch; kLongest if a play was ended
  // because it exceeded `limit` or, in manners without the global order, could not beat the
  // best.
  Duration try_manner(const Routing& routing, const Manner& manner, const std::string& how,
                      Duration limit) {
    player_.set_most(most_of(manner.held));
    RoutedStep step{routing, {}, {}, cat(how, ", ", manner.how), most_of(manner.held)};
    if (manner.global) return try_ready(step, global_orders(mesh_, routing), manner, limit);
    Patience patience = manner.patience;
    patience.guests = patience.guests * mesh_.pipelines / 2;
    // In periods one step does not determine the time.
    const bool tells = mesh_.pace == Pace::Barrier;
    // The orders of a play with waiting holders may be faster without the waiting.
    const Duration most = tells && patience.is_ready() ? limit : kLongest;
    auto played = player_.as_they_come(routing, patience, most);
    if (!played) return kLongest;
    if (tells && patience.is_ready() && !is_kept(played->time, best_.ready)) return played->time;
    const Duration time = try_ready(step, orders_of(played->lists), manner, best_.ready.time);
    if (patience.is_ready()) return time;
    step.lists = std::move(played->lists);
    if (try_listed(step)) listed_manner_ = manner;
    return time;
  }

  Duration try_ready(RoutedStep step, const Orders& orders, const Manner& manner, Duration limit) {
    step.time = player_.time(step.routing, orders, limit).value_or(kLongest);
    if (!is_kept(step.time, best_.ready)) return step.time;
    ready_manner_ = manner;
    step.lists = *player_.lists(step.routing, orders);
    best_.ready = step;
    // With fixed lists the time differs only if the next step overlaps this one.
    try_listed(std::move(step));
    return best_.ready.time;
  }

  // True when it is the best so far.
  bool try_listed(RoutedStep step) {
    if (best_.listed.time <= best_.bound) return false;
    step.most.clear();
    step.time = player_.time(step.routing, step.lists, best_.listed.time).value_or(kLongest);
    if (!is_kept(step.time, best_.listed)) return false;
    best_.listed = std::move(step);
    return true;
  }

  void move();
  void change(Routing& routing, Random& random) const;

  const Mesh& mesh_;
  const RouteEffort effort_;
  Watch* const watch_;
  MeshBound bound_;
  WayCosts costs_;
  MeshPlayer player_;
  const int64_t ops_ = int64_t{3} * mesh_.depth() * mesh_.micros;  // of a step
  std::set<Routing> seen_;
  std::vector<RoutedStep> fastest_;                                      // routings without lists
  Manner ready_manner_ = kManners[0], listed_manner_ = kMoreManners[0];  // of the best
  Routed best_;
  bool moving_ = false;
};

// Gives one micro-batch, or two, other holders from a stage on, or at one stage.
void Search::change(Routing& routing, Random& random) const {
  const auto below = [&](int32_t bound) { return static_cast<int32_t>(random.below(bound)); };
  const int32_t first = below(mesh_.depth());
  const bool rest = below(2) == 0, swaps = below(2) == 0;
  const int32_t a = below(mesh_.micros);
  const int32_t b = std::min(mesh_.micros - 1, a + 1 + below(2 * mesh_.pipelines));
  const int32_t last = rest ? mesh_.depth() - 1 : first;
  const int32_t like = below(mesh_.micros);  // the micro-batch whose way is copied
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
  Random random(1);
  moving_ = true;
  const int64_t until = std::max(player_.played_ops() + effort_.played_ops, effort_.all_ops);
  for (int32_t i = 0; i < effort_.moves && player_.played_ops() < until && !done(); ++i) {
    // Takes turns between the best of both kinds, each played in its own manner.
    const bool listed = i % 2 == 1;
    Routing routing = listed ? best_.listed.routing : best_.ready.routing;
    change(routing, random);
    if (!seen_.insert(routing).second) continue;
    try_manner(routing, listed ? listed_manner_ : ready_manner_, "micro-batches moved",
               best_.ready.time);
  }
}

}  // namespace

Routed search_route(const Mesh& mesh, const RouteEffort& effort, Watch* watch) {
  return Search(mesh, effort, watch).run();
}

Routing even_routing(const Mesh& mesh) {
  Routing routing;
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    auto& own = routing.emplace_back();
    for (int32_t m = 0; m < mesh.micros; ++m) {
      own.push_back(holder_at_home(mesh, s, m % mesh.pipelines));
    }
    share_out(own, mesh.width(s));
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
  return assign_micros(mesh, flow);
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
  for (Limit& limit : base.limits) limit = {0, 0, limit.memory};
  for (int32_t s = 0; s < mesh.depth() && dispatch == Dispatch::Ready; ++s) {
    for (const Holder& holder : mesh.stages[at(s)]) {
      if (!step.most.empty()) base.limits[at(holder.worker.value)].micros = step.most[at(s)];
    }
  }
  Plan made = with_work(base, std::move(work));
  made.dispatch = dispatch;
  return made;
}

}  // namespace tenuto
