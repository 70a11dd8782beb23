#include "sim/bound.h"

#include <algorithm>
#include <map>
#include <queue>

#include "sim/price.h"

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

// The micro-batches that go through the same workers. They are alike, so running them in the order
// of their numbers loses nothing.
struct Route {
  std::vector<WorkerId> workers;  // of each stage
  int32_t micros = 0;
};

// Times of one stage on one route.
struct Leg {
  Duration forward{}, backward{}, weight{};
  Duration down{}, up{};  // ways of the activation to the next stage, of the gradient to the one
                          // before
  int32_t room = 0;       // micro-batches held at once, at most
};

// Heads and tails of one stage, by micro-batch.
struct Marks {
  std::vector<Duration> forward, backward;
  explicit Marks(int32_t micros) : forward(at(micros)), backward(at(micros)) {}
};

class Routes {
 public:
  Routes(const Plan& plan, const Schedule& schedule, const Model& model, const Cluster& cluster,
         const PriceOptions& options)
      : plan_(plan),
        schedule_(schedule),
        model_(model),
        cluster_(cluster),
        options_(options),
        sizes_(sizes_of(model, plan.stages)),
        works_(schedule.lists.size()) {
    for (const Stage& stage : plan.stages) costs_.push_back(stage_cost(model, stage));
    find_routes();
  }

  // On the time from empty to the last weight gradient.
  Duration makespan() {
    for (const Route& route : routes_) follow(route);
    Duration most{};
    for (auto& works : works_) most = std::max(most, one_worker(works));
    return most;
  }

  // On the time between steps that follow one another without a barrier.
  Duration period() const {
    std::vector<Duration> work(schedule_.lists.size());
    for (const Route& route : routes_) {
      const std::vector<Leg> legs = legs_of(route);
      for (size_t s = 0; s < legs.size(); ++s) {
        work[at(route.workers[s].value)] +=
            route.micros * (legs[s].forward + legs[s].backward + legs[s].weight);
      }
    }
    Duration most{};
    for (const Route& route : routes_) {
      for (int32_t s = 0; s < schedule_.stage_count; ++s) {
        const Duration own =
            work[at(route.workers[at(s)].value)] +
            (options_.update ? at_speed(model_.step, speed(route, s)) : Duration{});
        most = std::max(most, own + (sole(route) ? gaps(route, s) : Duration{}));
      }
    }
    return most;
  }

 private:
  static bool is_forward(const Op& op) {
    return op.kind == OpKind::Forward || op.kind == OpKind::Evaluate;
  }

  void find_routes() {
    int32_t first_micro = INT32_MAX;
    for (const auto& list : schedule_.lists) {
      for (const Op& op : list) {
        if (!is_forward(op)) continue;
        trains_ = op.kind == OpKind::Forward;
        first_micro = std::min(first_micro, op.micro.value);
      }
    }
    std::vector<std::vector<WorkerId>> owners(at(schedule_.micro_count));
    for (auto& owner : owners) owner.resize(at(schedule_.stage_count));
    for (size_t w = 0; w < schedule_.lists.size(); ++w) {
      for (const Op& op : schedule_.lists[w]) {
        if (!is_forward(op)) continue;
        owners[at(op.micro.value - first_micro)][at(op.stage.value)] = {static_cast<int32_t>(w)};
      }
    }
    std::map<std::vector<WorkerId>, int32_t> counts;
    for (auto& owner : owners) ++counts[std::move(owner)];
    for (auto& [workers, micros] : counts) {
      routes_.push_back({workers, micros});
      for (const WorkerId worker : workers) ++uses_[worker];
    }
  }

  // True when no worker of the route has work of another stage or route.
  bool sole(const Route& route) const {
    return std::all_of(route.workers.begin(), route.workers.end(),
                       [&](WorkerId worker) { return uses_.at(worker) == 1; });
  }
  double speed(const Route& route, int32_t stage) const {
    return cluster_.workers[at(route.workers[at(stage)].value)].speed;
  }
  Duration time(OpKind kind, const Route& route, int32_t stage) const {
    Op op;
    op.kind = kind;
    op.stage = {stage};
    return at_speed(op_time(op, plan_, costs_, model_), speed(route, stage)) + options_.per_op;
  }
  // The way of one message; none inside a worker.
  Duration way(WorkerId from, WorkerId to, ValueKind kind, int32_t stage) const {
    if (from == to) return {};
    const Link link = cluster_.link(from, to);
    return link.latency + transfer_time(sizes_.of[at(stage)][at(int(kind))], link.bytes_per_second);
  }

  std::vector<Leg> legs_of(const Route& route) const {
    std::vector<Leg> legs(at(schedule_.stage_count));
    for (int32_t s = 0; s < schedule_.stage_count; ++s) {
      Leg& leg = legs[at(s)];
      const WorkerId worker = route.workers[at(s)];
      leg.forward = time(OpKind::Forward, route, s);
      if (trains_) {
        leg.backward = time(OpKind::BackwardInput, route, s);
        leg.weight = time(OpKind::BackwardWeight, route, s);
      }
      if (s + 1 < schedule_.stage_count) {
        leg.down = way(worker, route.workers[at(s) + 1], ValueKind::Activation, s);
      }
      if (s > 0) leg.up = way(worker, route.workers[at(s) - 1], ValueKind::Gradient, s);
      const int32_t limit =
          at(worker.value) < plan_.limits.size() ? plan_.limits[at(worker.value)].micros : 0;
      leg.room = limit > 0 ? std::min(limit, route.micros) : route.micros;
    }
    return legs;
  }

  void follow(const Route& route) {
    const std::vector<Leg> legs = legs_of(route);
    const std::vector<Marks> heads = heads_of(legs, route.micros);
    const std::vector<Marks> tails = tails_of(legs, route.micros);
    for (size_t s = 0; s < legs.size(); ++s) {
      auto& works = works_[at(route.workers[s].value)];
      for (size_t k = 0; k < at(route.micros); ++k) {
        works.push_back({heads[s].forward[k], legs[s].forward, tails[s].forward[k]});
        if (!trains_) continue;
        works.push_back({heads[s].backward[k], legs[s].backward, tails[s].backward[k]});
        if (legs[s].weight.count() == 0) continue;
        works.push_back({heads[s].backward[k] + legs[s].backward, legs[s].weight, {}});
      }
    }
  }

  // The earliest starts, from the way down, the way up, the ops before on the same worker, and the
  // room that earlier micro-batches must give back.
  std::vector<Marks> heads_of(const std::vector<Leg>& legs, int32_t micros) const {
    std::vector<Marks> heads(legs.size(), Marks(micros));
    for (int32_t k = 0; k < micros; ++k) {
      for (size_t s = 0; s < legs.size(); ++s) {
        Duration head{};
        if (s > 0) head = heads[s - 1].forward[at(k)] + legs[s - 1].forward + legs[s - 1].down;
        if (k > 0) head = std::max(head, heads[s].forward[at(k) - 1] + legs[s].forward);
        if (trains_ && k >= legs[s].room) {
          head = std::max(
              head, heads[s].backward[at(k - legs[s].room)] + legs[s].backward + legs[s].weight);
        }
        heads[s].forward[at(k)] = head;
      }
      for (size_t s = legs.size(); trains_ && s-- > 0;) {
        Duration head = heads[s].forward[at(k)] + legs[s].forward;
        if (s + 1 < legs.size()) {
          head =
              std::max(head, heads[s + 1].backward[at(k)] + legs[s + 1].backward + legs[s + 1].up);
        }
        if (k > 0) head = std::max(head, heads[s].backward[at(k) - 1] + legs[s].backward);
        heads[s].backward[at(k)] =
            std::max(head, heads[s].forward[0] + (k + 1) * legs[s].forward + k * legs[s].backward);
      }
    }
    return heads;
  }

  // The least times from the end of an op to the end of the step.
  std::vector<Marks> tails_of(const std::vector<Leg>& legs, int32_t micros) const {
    std::vector<Marks> tails(legs.size(), Marks(micros));
    for (int32_t k = micros - 1; k >= 0; --k) {
      const int32_t left = micros - 1 - k;
      for (size_t s = 0; trains_ && s < legs.size(); ++s) {
        Duration tail = left * legs[s].backward + (left + 1) * legs[s].weight;
        if (s > 0) {
          tail = std::max(tail, legs[s].up + legs[s - 1].backward + tails[s - 1].backward[at(k)]);
        }
        if (left > 0) tail = std::max(tail, legs[s].backward + tails[s].backward[at(k) + 1]);
        tails[s].backward[at(k)] = tail;
      }
      for (size_t s = legs.size(); s-- > 0;) {
        Duration tail = left * legs[s].forward;
        if (trains_) {
          tail += (left + 1) * (legs[s].backward + legs[s].weight);
          tail = std::max(tail, legs[s].backward + tails[s].backward[at(k)]);
        }
        if (s + 1 < legs.size()) {
          tail = std::max(tail, legs[s].down + legs[s + 1].forward + tails[s + 1].forward[at(k)]);
        }
        if (left > 0) tail = std::max(tail, legs[s].forward + tails[s].forward[at(k) + 1]);
        tails[s].forward[at(k)] = tail;
      }
    }
    return tails;
  }

  // What a worker must idle in every period: between its first forward and its first backward only
  // forwards can run, and between its last backward and its next forward only weight gradients.
  Duration gaps(const Route& route, int32_t stage) const {
    const std::vector<Leg> legs = legs_of(route);
    const size_t s = at(stage);
    Duration deep{}, back{};
    for (size_t j = s; j < legs.size(); ++j) {
      deep += legs[j].forward;
      if (j > s) deep += legs[j].backward + legs[j - 1].down + legs[j].up;
    }
    for (size_t j = 0; j < s; ++j) {
      back += legs[j].forward + legs[j].backward + legs[j].down + legs[j + 1].up;
    }
    const int32_t room = legs[s].room;
    Duration gap = std::max(Duration{}, deep - room * legs[s].forward);
    if (s > 0) gap += std::max(Duration{}, back + legs[0].weight - room * legs[s].weight);
    return gap;
  }

  const Plan& plan_;
  const Schedule& schedule_;
  const Model& model_;
  const Cluster& cluster_;
  const PriceOptions& options_;
  Sizes sizes_;
  std::vector<StageCost> costs_;
  bool trains_ = false;  // no: a held-out pass, forwards only
  std::vector<Route> routes_;
  std::map<WorkerId, int32_t> uses_;  // stages of routes, by worker
  std::vector<std::vector<Work>> works_;
};

}  // namespace

Duration lower_bound(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster, const PriceOptions& options) {
  Routes routes(plan, schedule, model, cluster, options);
  return options.staggered ? routes.period() : routes.makespan();
}

}  // namespace tenuto
