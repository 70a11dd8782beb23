#include "plan/lower.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "collective/ring.h"
#include "ir/effect.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Who makes and who needs the activation and the gradient of each stage and micro-batch.
class Makers {
 public:
  explicit Makers(const Schedule& schedule) : stage_count_(schedule.stage_count) {
    for (const auto& list : schedule.lists) {
      for (const Op& op : list) micro_end_ = std::max(micro_end_, op.micro.value + 1);
    }
    for (auto& side : maker_) side.assign(at(stage_count_) * at(micro_end_), WorkerId{});
    for (auto& side : reader_) side.assign(at(stage_count_) * at(micro_end_), WorkerId{});
    for (size_t worker = 0; worker < schedule.lists.size(); ++worker) {
      for (const Op& op : schedule.lists[worker]) {
        const Effect effect = effect_of(op, stage_count_);
        const WorkerId self{static_cast<int32_t>(worker)};
        for (const Value& value : effect.write) note(maker_, value, self);
        for (const Value& value : effect.read) note(reader_, value, self);
      }
    }
  }

  // The worker that makes a travelling value; none if nobody does.
  WorkerId maker(const Value& value) const { return look(maker_, value); }
  // The worker that needs it.
  WorkerId reader(const Value& value) const { return look(reader_, value); }

  // True for values of a micro-batch that can travel.
  static bool travels(const Value& value) {
    return value.kind == ValueKind::Activation || value.kind == ValueKind::Gradient;
  }

 private:
  using Sides = std::vector<WorkerId>[2];

  size_t place(const Value& value) const {
    return at(value.stage.value) * at(micro_end_) + at(value.micro.value);
  }
  void note(Sides& sides, const Value& value, WorkerId worker) {
    if (travels(value)) sides[value.kind == ValueKind::Gradient][place(value)] = worker;
  }
  WorkerId look(const Sides& sides, const Value& value) const {
    return travels(value) ? sides[value.kind == ValueKind::Gradient][place(value)] : WorkerId{};
  }

  int32_t stage_count_, micro_end_ = 0;
  Sides maker_, reader_;
};

Op message(OpKind kind, const Value& value, WorkerId peer) {
  Op op;
  op.kind = kind;
  op.moved = value.kind;
  op.stage = value.stage;
  op.micro = value.micro;
  op.peer = peer;
  return op;
}

Op of_stage(OpKind kind, StageId stage) {
  Op op;
  op.kind = kind;
  op.stage = stage;
  return op;
}

GroupId add_group(Schedule& schedule, std::vector<StageId> stages, std::vector<WorkerId> members) {
  const CollectiveId collective{static_cast<int32_t>(schedule.collectives.size())};
  schedule.collectives.push_back(make_ring(members));
  schedule.groups.push_back({std::move(stages), std::move(members), collective});
  return {static_cast<int32_t>(schedule.groups.size()) - 1};
}

// The reductions of each stage over its holders, the last stage first: its gradients are whole
// first. A tied weight comes in a second round over the holders of both its stages.
void append_reductions(Schedule& schedule, const std::vector<Stage>& stages, bool tied) {
  const int32_t last = schedule.stage_count - 1;
  const bool shared = tied && last > 0;
  std::vector<GroupId> groups;
  for (int32_t s = 0; s <= last; ++s) {
    groups.push_back(add_group(schedule, {{s}}, stages[at(s)].holders));
  }
  for (int32_t s = last; s >= 0; --s) {
    for (const WorkerId holder : stages[at(s)].holders) {
      Op reduce = of_stage(OpKind::Reduce, {s});
      reduce.group = groups[at(s)];
      if (shared && (s == 0 || s == last)) reduce.part = 0;
      schedule.lists[at(holder.value)].push_back(reduce);
    }
  }
  if (!shared) return;
  std::vector<WorkerId> both = stages.front().holders;
  both.insert(both.end(), stages.back().holders.begin(), stages.back().holders.end());
  const GroupId group = add_group(schedule, {{0}, {last}}, both);
  for (const int32_t s : {0, last}) {
    for (const WorkerId holder : stages[at(s)].holders) {
      Op reduce = of_stage(OpKind::Reduce, {s});
      reduce.group = group;
      reduce.part = 1;
      schedule.lists[at(holder.value)].push_back(reduce);
    }
  }
}

bool among(const std::vector<WorkerId>& workers, WorkerId worker) {
  return std::find(workers.begin(), workers.end(), worker) != workers.end();
}

// One of `workers` for number `index`: they take turns.
WorkerId in_turn(const std::vector<WorkerId>& workers, size_t index) {
  return workers[index % workers.size()];
}

// Which of `givers` worker number `index` of its stage takes the norm or the verdict from: the one
// that most of the values `like` in its list come from, since a routing keeps away from slow links;
// where several are equal, or there are none, they take turns.
WorkerId giver_of(const std::vector<Op>& list, const Value& like,
                  const std::vector<WorkerId>& givers, size_t index) {
  const WorkerId turn = in_turn(givers, index);
  std::map<WorkerId, int32_t> counts;
  for (const Op& op : list) {
    if (op.kind == OpKind::Recv && op.moved == like.kind && op.stage == like.stage) {
      ++counts[op.peer];
    }
  }
  WorkerId giver = turn;
  for (const WorkerId each : givers) {
    const auto count = counts.find(each);
    if (count != counts.end() && count->second > counts[giver]) giver = each;
  }
  return giver;
}

// Measure at each holder, the last stage's first. Each takes the norm behind it from a holder of
// that stage, unless it is one itself.
void append_norms(Schedule& schedule, const std::vector<Stage>& stages) {
  std::vector<WorkerId> givers;  // by holder of the stage at hand
  for (size_t s = stages.size(); s-- > 0;) {
    const auto& holders = stages[s].holders;
    const Value norm{ValueKind::Norm, -1, {static_cast<int32_t>(s)}, {}};
    for (size_t j = 0; j < holders.size(); ++j) {
      std::vector<Op>& list = schedule.lists[at(holders[j].value)];
      if (s + 1 < stages.size() && !among(stages[s + 1].holders, holders[j])) {
        const Value behind{ValueKind::Norm, -1, {norm.stage.value + 1}, {}};
        list.push_back(message(OpKind::Recv, behind, givers[j]));
      }
      list.push_back(of_stage(OpKind::Measure, norm.stage));
    }
    if (s == 0) continue;
    const auto& before = stages[s - 1].holders;
    givers.clear();
    for (size_t k = 0; k < before.size(); ++k) {
      const Value gradient{ValueKind::Gradient, -1, norm.stage, {}};
      givers.push_back(giver_of(schedule.lists[at(before[k].value)], gradient, holders, k));
      if (among(holders, before[k])) continue;
      schedule.lists[at(givers[k].value)].push_back(message(OpKind::Send, norm, before[k]));
    }
  }
}

// The verdict goes from the holders of the first stage, which make it, down the stages, once to
// each worker, and stays there for all its stages.
void append_verdicts(Schedule& schedule, const std::vector<Stage>& stages) {
  const Value verdict{ValueKind::Verdict, -1, {0}, {}};
  std::vector<WorkerId> givers = stages.front().holders;  // by turn: who has it, newest first
  std::vector<bool> told(schedule.lists.size(), false);
  for (const WorkerId holder : givers) told[at(holder.value)] = true;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const Value activation{ValueKind::Activation, -1, {static_cast<int32_t>(s) - 1}, {}};
    std::vector<WorkerId> next;
    for (size_t j = 0; j < stage.holders.size(); ++j) {
      const WorkerId self = stage.holders[j];
      const WorkerId giver = giver_of(schedule.lists[at(self.value)], activation, givers, j);
      next.push_back(told[at(self.value)] ? giver : self);
      if (told[at(self.value)]) continue;
      told[at(self.value)] = true;
      schedule.lists[at(self.value)].push_back(message(OpKind::Recv, verdict, giver));
      schedule.lists[at(giver.value)].push_back(message(OpKind::Send, verdict, self));
    }
    givers = std::move(next);
  }
}

}  // namespace

void insert_messages(Schedule& schedule) {
  const Makers makers(schedule);
  for (size_t worker = 0; worker < schedule.lists.size(); ++worker) {
    const WorkerId self{static_cast<int32_t>(worker)};
    std::vector<Op> list;
    list.reserve(2 * schedule.lists[worker].size());
    for (const Op& op : schedule.lists[worker]) {
      const Effect effect = effect_of(op, schedule.stage_count);
      for (const Value& value : effect.read) {
        const WorkerId from = makers.maker(value);
        if (from.value >= 0 && from != self) list.push_back(message(OpKind::Recv, value, from));
      }
      list.push_back(op);
      for (const Value& value : effect.write) {
        const WorkerId to = makers.reader(value);
        if (to.value >= 0 && to != self) list.push_back(message(OpKind::Send, value, to));
      }
    }
    schedule.lists[worker] = std::move(list);
  }
}

void append_update(Schedule& schedule, const std::vector<Stage>& stages, bool tied) {
  append_reductions(schedule, stages, tied);
  append_norms(schedule, stages);
  append_verdicts(schedule, stages);
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const WorkerId holder : stages[s].holders) {
      schedule.lists[at(holder.value)].push_back(of_stage(OpKind::Step, {static_cast<int32_t>(s)}));
    }
  }
}

bool is_tied(const Schedule& schedule) {
  return std::any_of(schedule.groups.begin(), schedule.groups.end(),
                     [](const Group& group) { return group.stages.size() > 1; });
}

Limit limit_of(const std::vector<Op>& list) {
  Limit limit;
  int32_t held = 0;
  bool warm = true;
  for (const Op& op : list) {
    if (op.kind == OpKind::Forward) {
      limit.micros = std::max(limit.micros, ++held);
      if (warm) ++limit.warm_up;
    }
    if (op.kind == OpKind::BackwardWeight) --held;
    if (op.kind == OpKind::BackwardInput) warm = false;
  }
  return limit;
}

Room room_of(int32_t memory, int32_t chunks, double late_share) {
  if (memory == 0) return {};
  constexpr int64_t kParts = 1000;  // of a micro-batch
  return {kParts * memory * chunks, kParts, std::llround(late_share * kParts)};
}

int64_t peak_of(const std::vector<Op>& list, const Room& room) {
  int64_t held = 0, peak = 0;
  for (const Op& op : list) {
    peak = std::max(peak, held += room.change(op.kind));
  }
  return peak;
}

}  // namespace tenuto
