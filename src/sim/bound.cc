#include "sim/bound.h"

#include <algorithm>
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

// Follows each micro-batch down and up the pipeline.
class Ways {
 public:
  Ways(const Plan& plan, const Schedule& schedule, const Model& model, const Cluster& cluster)
      : plan_(plan),
        schedule_(schedule),
        model_(model),
        cluster_(cluster),
        sizes_(sizes_of(model, plan.stages)) {
    for (const Stage& stage : plan.stages) costs_.push_back(stage_cost(model, stage));
    const size_t cells = at(schedule.stage_count) * at(schedule.micro_count);
    owner_.assign(cells, WorkerId{});
    for (size_t w = 0; w < schedule.lists.size(); ++w) {
      for (const Op& op : schedule.lists[w]) {
        if (!is_forward(op)) continue;
        trains_ = op.kind == OpKind::Forward;
        if (first_micro_ < 0 || op.micro.value < first_micro_) first_micro_ = op.micro.value;
      }
    }
    for (size_t w = 0; w < schedule.lists.size(); ++w) {
      for (const Op& op : schedule.lists[w]) {
        if (is_forward(op)) owner_[cell(op)] = {static_cast<int32_t>(w)};
      }
    }
    works_.resize(schedule.lists.size());
  }

  Duration bound() {
    for (int32_t m = 0; m < schedule_.micro_count; ++m) follow(m);
    Duration most{};
    for (auto& works : works_) most = std::max(most, one_worker(works));
    return most;
  }

 private:
  static bool is_forward(const Op& op) {
    return op.kind == OpKind::Forward || op.kind == OpKind::Evaluate;
  }
  size_t cell(const Op& op) const {
    return at(op.micro.value - first_micro_) * at(schedule_.stage_count) + at(op.stage.value);
  }
  WorkerId owner(int32_t stage, int32_t micro) const {
    return owner_[at(micro) * at(schedule_.stage_count) + at(stage)];
  }
  Duration time(OpKind kind, int32_t stage, WorkerId worker) const {
    Op op;
    op.kind = kind;
    op.stage = {stage};
    return at_speed(op_time(op, plan_, costs_, model_), cluster_.workers[at(worker.value)].speed);
  }
  // The way of one message; none inside a worker.
  Duration way(WorkerId from, WorkerId to, ValueKind kind, int32_t stage) const {
    if (from == to) return {};
    const Link link = cluster_.link(from, to);
    return link.latency + transfer_time(sizes_.of[at(stage)][at(int(kind))], link.bytes_per_second);
  }

  void follow(int32_t m) {
    const int32_t stages = schedule_.stage_count;
    std::vector<Duration> forward_head(at(stages)), backward_head(at(stages));
    std::vector<Duration> forward(at(stages)), backward(at(stages)), weight(at(stages));
    for (int32_t s = 0; s < stages; ++s) {
      const WorkerId worker = owner(s, m);
      forward[at(s)] = time(OpKind::Forward, s, worker);
      backward[at(s)] = trains_ ? time(OpKind::BackwardInput, s, worker) : Duration{};
      weight[at(s)] = trains_ ? time(OpKind::BackwardWeight, s, worker) : Duration{};
      if (s == 0) continue;
      forward_head[at(s)] = forward_head[at(s) - 1] + forward[at(s) - 1] +
                            way(owner(s - 1, m), worker, ValueKind::Activation, s - 1);
    }
    const auto up = [&](int32_t s) {  // the gradient's way from stage s to s - 1
      return trains_ ? way(owner(s, m), owner(s - 1, m), ValueKind::Gradient, s) : Duration{};
    };
    for (int32_t s = stages - 1; s >= 0; --s) {
      backward_head[at(s)] = s == stages - 1
                                 ? forward_head[at(s)] + forward[at(s)]
                                 : backward_head[at(s) + 1] + backward[at(s) + 1] + up(s + 1);
    }
    std::vector<Duration> backward_tail(at(stages));
    for (int32_t s = 0; s < stages; ++s) {
      backward_tail[at(s)] = weight[at(s)];
      if (s == 0) continue;
      backward_tail[at(s)] =
          std::max(weight[at(s)], up(s) + backward[at(s) - 1] + backward_tail[at(s) - 1]);
    }
    Duration forward_tail = backward[at(stages) - 1] + backward_tail[at(stages) - 1];
    for (int32_t s = stages - 1; s >= 0; --s) {
      auto& works = works_[at(owner(s, m).value)];
      if (s < stages - 1) {
        forward_tail +=
            forward[at(s) + 1] + way(owner(s, m), owner(s + 1, m), ValueKind::Activation, s);
      }
      works.push_back({forward_head[at(s)], forward[at(s)], forward_tail});
      if (!trains_) continue;
      works.push_back({backward_head[at(s)], backward[at(s)], backward_tail[at(s)]});
      if (weight[at(s)].count() == 0) continue;
      works.push_back({backward_head[at(s)] + backward[at(s)], weight[at(s)], {}});
    }
  }

  const Plan& plan_;
  const Schedule& schedule_;
  const Model& model_;
  const Cluster& cluster_;
  Sizes sizes_;
  std::vector<StageCost> costs_;
  int32_t first_micro_ = -1;
  bool trains_ = false;          // no: a held-out pass, forwards only
  std::vector<WorkerId> owner_;  // [micro][stage]
  std::vector<std::vector<Work>> works_;
};

}  // namespace

Duration lower_bound(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster) {
  return Ways(plan, schedule, model, cluster).bound();
}

}  // namespace tenuto
