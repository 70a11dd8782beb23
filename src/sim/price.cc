#include "sim/price.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "base/text.h"
#include "ir/pairing.h"
#include "ir/text.h"
#include "ir/walk.h"
#include "sim/bound.h"
#include "sim/reduction_price.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr Duration kNotYet{-1};

// The end of an op, on its way through the queue.
struct End {
  Duration time{};
  int32_t worker = 0;
  LaneKind lane = LaneKind::Compute;
  int32_t index = 0;
  bool operator>(const End& other) const {
    return std::tie(time, worker, lane, index) >
           std::tie(other.time, other.worker, other.lane, other.index);
  }
};

// One directed link in use.
struct Wire {
  WorkerId to;
  Link link;
  Duration free_at{};
};

// Ops that only the update needs.
bool is_update(const Op& op) {
  switch (op.kind) {
    case OpKind::Reduce:
    case OpKind::Measure:
    case OpKind::Step:
      return true;
    case OpKind::Send:
    case OpKind::Recv:
      return op.moved == ValueKind::Norm || op.moved == ValueKind::Verdict;
    default:
      return false;
  }
}

// Runs the walks of all workers on one clock.
class Clockwork {
 public:
  Clockwork(const Plan& plan, const Schedule& schedule, const Model& model, const Cluster& cluster,
            const PriceOptions& options)
      : plan_(plan),
        schedule_(schedule),
        model_(model),
        cluster_(cluster),
        options_(options),
        sizes_(sizes_of(model, plan.stages)) {
    for (const Stage& stage : plan.stages) costs_.push_back(stage_cost(model, stage));
  }

  Result<Timeline> run() {
    auto pairing = pair_messages(schedule_);
    if (!pairing.ok()) return pairing.error();
    pairing_ = std::move(pairing).value();
    set_up();
    while (!ends_.empty()) {
      now_ = ends_.top().time;
      while (!ends_.empty() && ends_.top().time == now_) {
        const End end = ends_.top();
        ends_.pop();
        walks_[at(end.worker)].finish(end.index);
        ++ended_;
        if (touched_.empty() || touched_.back() != end.worker) touched_.push_back(end.worker);
      }
      for (const int32_t worker : touched_) start_all({worker});
      touched_.clear();
    }
    if (ended_ < pairing_.first.back()) return stuck();
    return timeline();
  }

 private:
  void set_up() {
    const size_t ops = at(pairing_.first.back());
    start_.assign(ops, kNotYet);
    finish_.assign(ops, kNotYet);
    wires_.resize(schedule_.lists.size());
    at_group_.resize(schedule_.groups.size());
    peak_.assign(schedule_.lists.size(), 0);
    busy_.assign(schedule_.lists.size(), Duration{});
    walks_.reserve(schedule_.lists.size());
    for (size_t w = 0; w < schedule_.lists.size(); ++w) {
      walks_.emplace_back(plan_, schedule_, WorkerId{static_cast<int32_t>(w)});
    }
    for (size_t w = 0; w < schedule_.lists.size(); ++w) start_all({static_cast<int32_t>(w)});
  }

  void start_all(WorkerId worker) {
    Walk& walk = walks_[at(worker.value)];
    for (auto able = walk.startable(); !able.empty(); able = walk.startable()) {
      starting_.assign(able.begin(), able.end());
      for (const int32_t index : starting_) {
        walk.start(index);
        start(worker, index, walk.op(index));
      }
    }
    peak_[at(worker.value)] = std::max(peak_[at(worker.value)], walk.held());
  }

  void start(WorkerId worker, int32_t index, const Op& op) {
    const int32_t number = pairing_.number(worker, index);
    start_[at(number)] = now_;
    switch (op.kind) {
      case OpKind::Send:
        if (start_[at(pairing_.partner[at(number)])] != kNotYet) transfer(number, worker, op);
        break;
      case OpKind::Recv: {
        const int32_t send = pairing_.partner[at(number)];
        if (start_[at(send)] != kNotYet) transfer(send, op.peer, op);
        break;
      }
      case OpKind::Reduce:
        reduce(worker, index, op);
        break;
      default: {
        const Duration time =
            at_speed(op_time(op, plan_, costs_, model_), cluster_.workers[at(worker.value)].speed);
        if (options_.update || !is_update(op)) busy_[at(worker.value)] += time;
        end(worker, index, LaneKind::Compute, now_ + time);
      }
    }
  }

  void end(WorkerId worker, int32_t index, LaneKind lane, Duration time) {
    finish_[at(pairing_.number(worker, index))] = time;
    ends_.push({time, worker.value, lane, index});
  }

  // Both ends of the message whose Send has number `send` are ready: it goes.
  void transfer(int32_t send, WorkerId from, const Op& op) {
    const int32_t recv = pairing_.partner[at(send)];
    const int32_t index = send - pairing_.first[at(from.value)];
    const WorkerId to = walks_[at(from.value)].op(index).peer;
    Wire& wire = wire_of(from, to);
    const Duration begin = std::max(now_, wire.free_at);
    const Bytes size = sizes_.of[at(op.stage.value)][static_cast<size_t>(op.moved)];
    const Duration out = begin + transfer_time(size, wire.link.bytes_per_second);
    wire.free_at = out;
    start_[at(send)] = start_[at(recv)] = begin;
    const LaneKind lane = lane_of(walks_[at(from.value)].op(index));
    end(from, index, lane, out);
    const int32_t recv_index = recv - pairing_.first[at(to.value)];
    end(to, recv_index, lane_of(walks_[at(to.value)].op(recv_index)), out + wire.link.latency);
  }

  // A worker has few peers: a linear search is the fastest.
  Wire& wire_of(WorkerId from, WorkerId to) {
    auto& wires = wires_[at(from.value)];
    for (Wire& wire : wires) {
      if (wire.to == to) return wire;
    }
    return wires.emplace_back(Wire{to, cluster_.link(from, to), {}});
  }

  // The last member to come starts the reduction for all.
  void reduce(WorkerId worker, int32_t index, const Op& op) {
    const Group& group = schedule_.groups[at(op.group.value)];
    auto& waiting = at_group_[at(op.group.value)];
    waiting.emplace_back(worker, index);
    if (waiting.size() < group.members.size()) return;
    std::vector<Duration> starts;
    std::vector<int32_t> indices;
    for (const WorkerId member : group.members) {
      const auto there = std::find_if(waiting.begin(), waiting.end(),
                                      [&](const auto& it) { return it.first == member; });
      CHECK(there != waiting.end(), "a group with a stranger");
      indices.push_back(there->second);
      starts.push_back(start_[at(pairing_.number(member, there->second))]);
    }
    Bytes size = costs_[at(op.stage.value)].parameters;
    if (op.part == 0) size = size - model_.tied;
    if (op.part > 0) size = model_.tied;
    const auto finishes =
        reduction_finish(schedule_.collectives[at(group.collective.value)], starts, size, cluster_);
    for (size_t i = 0; i < finishes.size(); ++i) {
      end(group.members[i], indices[i], LaneKind::Reduce, std::max(now_, finishes[i]));
    }
  }

  Error stuck() const {
    std::string waits;
    std::vector<Mark> marks;
    for (size_t w = 0; w < walks_.size(); ++w) {
      for (const int32_t index : walks_[w].waiting()) {
        const WorkerId worker{static_cast<int32_t>(w)};
        const auto missing = walks_[w].missing(index);
        if (marks.size() < 4) {
          waits += cat(marks.empty() ? "" : ", ", "worker ", worker, " at ",
                       to_text(walks_[w].op(index)), " for ",
                       missing.empty() ? std::string("room") : to_text(missing.front()));
        }
        marks.push_back({worker, index});
      }
    }
    return {Code::Infeasible, Reach::Job,
            cat("nothing can move after ", ended_, " of ", pairing_.first.back(),
                " ops; waiting: ", waits, "\n", table(schedule_, marks))};
  }

  Timeline timeline() const {
    Timeline result;
    result.ops = pairing_.first.back();
    result.peak_micros = peak_;
    int64_t workers = 0;
    Duration busy{};
    for (size_t w = 0; w < schedule_.lists.size(); ++w) {
      const auto& list = schedule_.lists[w];
      for (size_t i = 0; i < list.size(); ++i) {
        if (!options_.update && is_update(list[i])) continue;
        const size_t number = at(pairing_.first[w]) + i;
        result.makespan = std::max(result.makespan, finish_[number]);
        if (!options_.spans) continue;
        result.spans.push_back(
            {{static_cast<int32_t>(w)}, list[i], start_[number], finish_[number]});
      }
      if (!list.empty()) ++workers;
      busy += busy_[w];
    }
    std::stable_sort(result.spans.begin(), result.spans.end(), [](const Span& a, const Span& b) {
      return std::tie(a.worker, a.start) < std::tie(b.worker, b.start);
    });
    if (options_.lower_bound) {
      result.lower_bound = lower_bound(plan_, schedule_, model_, cluster_);
    }
    if (result.makespan.count() > 0) {
      result.bubble_fraction =
          1.0 - static_cast<double>(busy.count()) /
                    (static_cast<double>(workers) * static_cast<double>(result.makespan.count()));
    }
    return result;
  }

  const Plan& plan_;
  const Schedule& schedule_;
  const Model& model_;
  const Cluster& cluster_;
  const PriceOptions& options_;
  Sizes sizes_;
  std::vector<StageCost> costs_;
  Pairing pairing_;
  std::vector<Walk> walks_;
  std::vector<Duration> start_, finish_;  // by number of the op
  std::vector<std::vector<Wire>> wires_;  // by sender
  std::vector<std::vector<std::pair<WorkerId, int32_t>>> at_group_;
  std::vector<int32_t> peak_;
  std::vector<Duration> busy_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<int32_t> touched_, starting_;
  Duration now_{};
  int64_t ended_ = 0;
};

Status check_cluster(const Schedule& schedule, const Cluster& cluster) {
  CHECK(cluster.workers.size() >= schedule.lists.size(), "the cluster has too few workers");
  for (size_t w = 0; w < schedule.lists.size(); ++w) {
    const Worker& worker = cluster.workers[w];
    if (schedule.lists[w].empty()) continue;
    if (worker.alive && std::isfinite(worker.speed) && worker.speed > 0) continue;
    return Error{Code::Infeasible, Reach::Worker,
                 cat("worker ", w,
                     worker.alive ? cat(" has speed ", worker.speed, ": expected more than 0")
                                  : std::string(" is not alive and the plan gives it ops"))};
  }
  return ok();
}

}  // namespace

Duration at_speed(Duration time, double speed) {
  if (speed == 1.0) return time;
  return Duration(std::llround(static_cast<double>(time.count()) / speed));
}

Duration op_time(const Op& op, const Plan& plan, const std::vector<StageCost>& costs,
                 const Model& model) {
  const StageCost& cost = costs[at(op.stage.value)];
  switch (op.kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      return cost.forward;
    case OpKind::BackwardInput:
      return plan.split_backward ? cost.backward_input : cost.backward_input + cost.backward_weight;
    case OpKind::BackwardWeight:
      return plan.split_backward ? cost.backward_weight : Duration{};
    case OpKind::Step:
      return model.step;
    default:
      return {};
  }
}

Result<Timeline> price(const Plan& plan, const Model& model, const Cluster& cluster,
                       const PriceOptions& options) {
  const Schedule& schedule = options.evaluation ? plan.evaluation : plan.schedule;
  if (const Status status = check_cluster(schedule, cluster); !status.ok()) return status.error();
  return Clockwork(plan, schedule, model, cluster, options).run();
}

}  // namespace tenuto
