#include "sim/bound.h"

#include <algorithm>
#include <queue>

#include "base/longest_time.h"
#include "sim/marks.h"
#include "sim/route.h"
#include "world/port_sides.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One op on its worker.
struct Work {
  Duration head{}, time{}, tail{};
};

// Jackson's preemptive rule on one worker.
Duration one_worker(std::vector<Work>& works) {
  std::sort(works.begin(), works.end(),
            [](const Work& a, const Work& b) { return a.head < b.head; });
  struct Open {
    Duration tail{}, left{};
    bool operator<(const Open& other) const { return tail < other.tail; }
  };
  std::priority_queue<Open> open;
  Duration now{}, bound{};
  size_t next = 0;
  while (next < works.size() || !open.empty()) {
    if (open.empty()) now = std::max(now, works[next].head);
    while (next < works.size() && works[next].head <= now) {
      open.push({works[next].tail, works[next].time});
      ++next;
    }
    Open top = open.top();
    open.pop();
    const Duration until = next < works.size() ? works[next].head : Duration::max();
    if (until - now < top.left) {
      top.left -= until - now;
      now = until;
      open.push(top);
      continue;
    }
    now += top.left;
    bound = std::max(bound, now + top.tail);
  }
  return bound;
}

// The ops of a route with their heads and tails, by stage.
std::vector<std::vector<Work>> works_of(const Route& route) {
  const std::vector<Marks> heads = heads_of(route);
  const std::vector<Marks> tails = tails_of(route);
  std::vector<std::vector<Work>> works(route.legs.size());
  for (size_t s = 0; s < works.size(); ++s) {
    const Leg& leg = route.legs[s];
    for (size_t k = 0; k < route.micros.size(); ++k) {
      works[s].push_back({heads[s].forward[k], leg.forward, tails[s].forward[k]});
      if (!route.trains) continue;
      works[s].push_back({heads[s].backward[k], leg.backward, tails[s].backward[k]});
      if (leg.weight.count() == 0) continue;
      works[s].push_back({heads[s].weight[k], leg.weight, tails[s].weight[k]});
    }
  }
  return works;
}

// The idle time of a worker in every period: between its first forward and its first backward only
// forwards can run, and between its last backward and its next forward only weight gradients.
Duration gaps(const Route& route, size_t stage) {
  const std::vector<Leg>& legs = route.legs;
  Duration deep{}, back{};
  for (size_t j = stage; j < legs.size(); ++j) {
    deep += legs[j].forward;
    if (j > stage) {
      deep += legs[j].backward + legs[j - 1].down + legs[j - 1].down_busy + legs[j].up +
              legs[j].up_busy;
    }
  }
  for (size_t j = 0; j < stage; ++j) {
    back += legs[j].forward + legs[j].backward + legs[j].down + legs[j].down_busy + legs[j + 1].up +
            legs[j + 1].up_busy;
  }
  const auto micros = static_cast<int32_t>(route.micros.size());
  const Leg& leg = legs[stage];
  Duration gap = std::max(Duration{}, deep - leg.memory.most_whole(micros) * leg.forward);
  if (stage > 0) {
    // Weight gradients that wait for this gap: as many as the memory limit allows.
    const MemoryLimit& memory = leg.memory;
    const int64_t late = memory.most == 0 || memory.late == 0
                             ? micros
                             : std::min<int64_t>(micros, memory.most / memory.late);
    gap += std::max(Duration{}, back + legs[0].weight - late * leg.weight);
  }
  return gap;
}

Duration bound_of_makespan(const std::vector<Route>& routes, size_t workers) {
  std::vector<std::vector<Work>> works(workers);
  for (const Route& route : routes) {
    const auto own = works_of(route);
    for (size_t s = 0; s < own.size(); ++s) {
      auto& all = works[at(route.workers[s].value)];
      all.insert(all.end(), own[s].begin(), own[s].end());
    }
  }
  Duration most{};
  for (auto& of : works) most = std::max(most, one_worker(of));
  return most;
}

// How long the messages of a step occupy the busiest side of a port.
Duration bound_of_ports(const Plan& plan, const Schedule& schedule, const Model& model,
                        const Cluster& cluster) {
  PortSides ports(cluster);
  if (ports.empty()) return {};
  const Sizes sizes = sizes_of(model, plan.stages);
  for (size_t w = 0; w < schedule.lists.size(); ++w) {
    for (const Op& op : schedule.lists[w]) {
      if (op.kind != OpKind::Send) continue;
      if (op.moved != ValueKind::Activation && op.moved != ValueKind::Gradient) continue;
      const std::vector<int32_t> sides = ports.between({static_cast<int32_t>(w)}, op.peer);
      ports.occupy(sides, sizes.of[at(op.stage.value)][at(static_cast<int>(op.moved))], {});
    }
  }
  return ports.busiest();
}

// A lower bound on the period of steps without a barrier between them. `update`: the time that a
// stage's update takes on a worker.
Duration bound_of_period(const std::vector<Route>& routes, size_t workers,
                         const std::vector<Duration>& update) {
  std::vector<Duration> work(workers);
  std::vector<int32_t> uses(workers, 0);  // by worker: stages that it runs, over all routes
  for (const Route& route : routes) {
    for (size_t s = 0; s < route.legs.size(); ++s) {
      const Leg& leg = route.legs[s];
      const size_t worker = at(route.workers[s].value);
      work[worker] +=
          static_cast<int64_t>(route.micros.size()) * (leg.forward + leg.backward + leg.weight);
      ++uses[worker];
    }
  }
  Duration most{};
  for (const Route& route : routes) {
    // The idle times hold only for a worker that has no work of another stage or route.
    const bool sole = std::all_of(route.workers.begin(), route.workers.end(),
                                  [&](WorkerId worker) { return uses[at(worker.value)] == 1; });
    for (size_t s = 0; s < route.legs.size(); ++s) {
      const size_t worker = at(route.workers[s].value);
      most = std::max(most, work[worker] + update[worker] + (sole ? gaps(route, s) : Duration{}));
    }
  }
  return most;
}

}  // namespace

Duration line_bound(const Route& route) {
  Duration most{};
  for (auto& works : works_of(route)) most = std::max(most, one_worker(works));
  return most;
}

Duration lower_bound(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster, const PriceOptions& options) {
  const std::vector<Route> routes = routes_of(plan, schedule, model, cluster, options);
  if (!steps_overlap(options)) {
    return std::max(bound_of_makespan(routes, schedule.lists.size()),
                    bound_of_ports(plan, schedule, model, cluster));
  }
  std::vector<Duration> update(schedule.lists.size());
  for (size_t w = 0; options.update && w < update.size(); ++w) {
    for (const Op& op : schedule.lists[w]) {
      if (op.kind != OpKind::Step && op.kind != OpKind::StepAhead) continue;
      const Duration time = stage_cost(model, plan.stages[at(op.stage.value)]).update;
      update[w] = plus(update[w], at_speed(time, cluster.workers[w].speed));
    }
  }
  return bound_of_period(routes, schedule.lists.size(), update);
}

}  // namespace tenuto
