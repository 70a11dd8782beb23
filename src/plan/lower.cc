#include "plan/lower.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/contains.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/ring.h"
#include "ir/effect.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Which worker makes and which needs the activation and the gradient of each stage and micro-batch.
class Makers {
 public:
  Makers(const Schedule& schedule, const Stores& stores) : stage_count_(schedule.stage_count) {
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
    for (size_t worker = 0; worker < stores.size(); ++worker) {
      for (const Value& value : stores[worker]) {
        if (value.micro.value < micro_end_) note(maker_, value, {static_cast<int32_t>(worker)});
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

// How these members sum, by the rule for all groups and the entry for these stages.
Summing summing_of(const std::string& all_reduce, const Summings& summings,
                   const std::vector<StageId>& stages, const std::vector<WorkerId>& members) {
  if (members.size() < 2) return {};
  const auto own = summings.find(stages);
  Summing summing = own == summings.end() ? Summing{} : own->second;
  if (all_reduce != kAutoAllReduce && summing.algorithm != all_reduce) {
    summing = {all_reduce, {}, 0};
  }
  const NamedAlgorithm* algorithm = find_algorithm(summing.algorithm);
  if (algorithm == nullptr) return {};
  if (algorithm->card.late_most == 0) return {summing.algorithm, {}, summing.chunks};
  if (contains(members, summing.late)) return summing;
  // The late member is gone: with auto, sum by the ring; else another member is the late one.
  if (all_reduce == kAutoAllReduce) return {};
  return {summing.algorithm, members.back(), summing.chunks};
}

GroupId add_group(Schedule& schedule, const Summings& summings, std::vector<StageId> stages,
                  std::vector<WorkerId> members) {
  const CollectiveId collective{static_cast<int32_t>(schedule.collectives.size())};
  Summing summing = summing_of(schedule.all_reduce, summings, stages, members);
  Collective made;
  if (summing != Summing{}) {
    CollectiveShape shape;
    shape.members = members;
    shape.chunks = summing.chunks;
    if (summing.late.value >= 0) shape.late = {summing.late};
    auto procedure = make_procedure(summing.algorithm, shape);
    // The number of chunks may not suit other members: let the algorithm choose it.
    if (!procedure.ok() && shape.chunks > 0) {
      shape.chunks = summing.chunks = 0;
      procedure = make_procedure(summing.algorithm, shape);
    }
    if (procedure.ok()) made = std::move(procedure).value().collective;
  }
  if (made.members.empty()) {
    summing = {};
    made = make_ring(members);
  }
  schedule.collectives.push_back(std::move(made));
  schedule.groups.push_back(
      {std::move(stages), std::move(members), collective, std::move(summing)});
  return {static_cast<int32_t>(schedule.groups.size()) - 1};
}

// Appends the reductions of each stage over its holders, the last stage first, since its gradients
// are complete first. Skips stages whose total is `there`. A tied weight is reduced after these,
// over the holders of both its stages.
void append_reductions(Plan& plan, const Summings& summings, const std::vector<bool>& there = {}) {
  Schedule& schedule = plan.schedule;
  const std::vector<Stage>& stages = plan.stages;
  const int32_t last = schedule.stage_count - 1;
  const auto has_total = [&](int32_t s) { return !there.empty() && there[at(s)]; };
  const bool shared = plan.update.tied && last > 0 && !has_total(0);
  plan.update.tied = shared;
  std::vector<GroupId> groups(stages.size());
  for (int32_t s = 0; s <= last; ++s) {
    if (!has_total(s)) groups[at(s)] = add_group(schedule, summings, {{s}}, stages[at(s)].holders);
  }
  for (int32_t s = last; s >= 0; --s) {
    if (has_total(s)) continue;
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
  const GroupId group = add_group(schedule, summings, {{0}, {last}}, both);
  for (const int32_t s : {0, last}) {
    for (const WorkerId holder : stages[at(s)].holders) {
      Op reduce = of_stage(OpKind::Reduce, {s});
      reduce.group = group;
      reduce.part = 1;
      schedule.lists[at(holder.value)].push_back(reduce);
    }
  }
}

// One of `workers` for number `index`: they take turns.
WorkerId in_turn(const std::vector<WorkerId>& workers, size_t index) {
  return workers[index % workers.size()];
}

// Chooses the holder of the previous stage from which a worker receives the norm or the clip
// decision.
class Givers {
 public:
  // While it is used, only messages of norms and clip decisions may be added to the schedule's
  // lists.
  explicit Givers(const Schedule& schedule)
      : schedule_(schedule), counts_(schedule.lists.size()), known_(schedule.lists.size(), false) {}

  // Worker `self` is holder `index` of stage `to`, and `givers` are the holders of stage `from`.
  // Returns the giver that sends `self` most activations or gradients, since a routing avoids slow
  // links. On a tie, or if none sends any, the givers take turns.
  WorkerId of(WorkerId self, int32_t from, int32_t to, const std::vector<WorkerId>& givers,
              size_t index) {
    WorkerId giver = in_turn(givers, index);
    const Counts& all = counts_of(self);
    const auto found = all.find({from < to ? ValueKind::Activation : ValueKind::Gradient, from});
    if (found == all.end()) return giver;
    const auto count = [&](WorkerId peer) {
      const auto counted = found->second.find(peer);
      return counted == found->second.end() ? 0 : counted->second;
    };
    for (const WorkerId each : givers) {
      if (count(each) > count(giver)) giver = each;
    }
    return giver;
  }

 private:
  // The number of receives in a worker's list, by kind of value and stage, then by peer.
  using Counts = std::map<std::pair<ValueKind, int32_t>, std::map<WorkerId, int32_t>>;

  const Counts& counts_of(WorkerId worker) {
    Counts& counts = counts_[at(worker.value)];
    if (known_[at(worker.value)]) return counts;
    known_[at(worker.value)] = true;
    for (const Op& op : schedule_.lists[at(worker.value)]) {
      const bool counted = op.moved == ValueKind::Activation || op.moved == ValueKind::Gradient;
      if (op.kind == OpKind::Recv && counted) ++counts[{op.moved, op.stage.value}][op.peer];
    }
    return counts;
  }

  const Schedule& schedule_;
  std::vector<Counts> counts_;
  std::vector<bool> known_;
};

// The order in which the norm passes the stages, and the op that measures it. With a barrier it
// goes from the last stage to the first, so that it arrives with the last gradient. Staggered, it
// goes from the first to the last, the order in which the stages finish a step in a steady
// pipeline.
struct NormWay {
  OpKind measure = OpKind::Measure;
  std::vector<int32_t> stages;
};

NormWay norm_way(int32_t stage_count, bool staggered) {
  NormWay way;
  if (staggered) way.measure = OpKind::MeasureAhead;
  for (int32_t s = 0; s < stage_count; ++s) {
    way.stages.push_back(staggered ? s : stage_count - 1 - s);
  }
  return way;
}

// Appends the measure of each holder, stage by stage along the way. Each receives the norm so far
// from a holder of the previous stage on the way, unless it holds that stage itself.
void append_norms(Schedule& schedule, const std::vector<Stage>& stages, const NormWay& way) {
  Givers counted(schedule);
  std::vector<WorkerId> givers;  // by holder of the stage at hand
  for (size_t i = 0; i < way.stages.size(); ++i) {
    const auto& holders = stages[at(way.stages[i])].holders;
    const Value norm{ValueKind::Norm, -1, {way.stages[i]}, {}};
    for (size_t j = 0; j < holders.size(); ++j) {
      std::vector<Op>& list = schedule.lists[at(holders[j].value)];
      if (i > 0) {
        const Value so_far{ValueKind::Norm, -1, {way.stages[i - 1]}, {}};
        if (!holds(stages[at(way.stages[i - 1])], holders[j])) {
          list.push_back(message(OpKind::Recv, so_far, givers[j]));
        }
      }
      list.push_back(of_stage(way.measure, norm.stage));
    }
    if (i + 1 == way.stages.size()) continue;
    const auto& to = stages[at(way.stages[i + 1])].holders;
    givers.clear();
    for (size_t k = 0; k < to.size(); ++k) {
      givers.push_back(counted.of(to[k], way.stages[i], way.stages[i + 1], holders, k));
      if (contains(holders, to[k])) continue;
      schedule.lists[at(givers[k].value)].push_back(message(OpKind::Send, norm, to[k]));
    }
  }
}

// For each worker, its messages with the clip decision. The holders of the first stage of `order`
// make the decision. It is passed on from stage to stage, once to each worker, which keeps it for
// all its stages.
std::vector<std::vector<Op>> clip_decision_messages(const Schedule& schedule,
                                                    const std::vector<Stage>& stages,
                                                    const std::vector<int32_t>& order) {
  const Value clip_decision{ValueKind::ClipDecision, -1, {order.front()}, {}};
  std::vector<std::vector<Op>> lists(schedule.lists.size());
  std::vector<WorkerId> givers = stages[at(order.front())].holders;  // who passes it on
  std::vector<bool> told(schedule.lists.size(), false);
  for (const WorkerId holder : givers) told[at(holder.value)] = true;
  Givers counted(schedule);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& holders = stages[at(order[i])].holders;
    const int32_t before = i == 0 ? order[i] : order[i - 1];
    std::vector<WorkerId> next;
    for (size_t j = 0; j < holders.size(); ++j) {
      const WorkerId self = holders[j];
      const WorkerId giver = counted.of(self, before, order[i], givers, j);
      next.push_back(told[at(self.value)] ? giver : self);
      if (told[at(self.value)]) continue;
      told[at(self.value)] = true;
      lists[at(self.value)].push_back(message(OpKind::Recv, clip_decision, giver));
      lists[at(giver.value)].push_back(message(OpKind::Send, clip_decision, self));
    }
    givers = std::move(next);
  }
  return lists;
}

// Puts at the front of each list the clip decision on the previous step, and the Validate ops.
void prepend_validation(Schedule& schedule, const std::vector<Stage>& stages,
                        std::vector<int32_t> order) {
  std::reverse(order.begin(), order.end());
  std::vector<std::vector<Op>> fronts = clip_decision_messages(schedule, stages, order);
  for (const int32_t s : order) {
    for (const WorkerId holder : stages[at(s)].holders) {
      std::vector<Op>& front = fronts[at(holder.value)];
      const Op validate = of_stage(OpKind::Validate, {s});
      // The makers of the clip decision validate before they send it, the others after they receive
      // it.
      const auto place = s == order.front() ? front.begin() : front.end();
      front.insert(place, validate);
    }
  }
  for (size_t w = 0; w < fronts.size(); ++w) {
    schedule.lists[w].insert(schedule.lists[w].begin(), fronts[w].begin(), fronts[w].end());
  }
}

// Appends the Measure ops along the way, then the messages of the clip decision, which the last
// stage of the way makes.
void append_clip_decision(Schedule& schedule, const std::vector<Stage>& stages,
                          const NormWay& way) {
  append_norms(schedule, stages, way);
  std::vector<int32_t> down(way.stages.rbegin(), way.stages.rend());
  const auto messages = clip_decision_messages(schedule, stages, down);
  for (size_t w = 0; w < messages.size(); ++w) {
    schedule.lists[w].insert(schedule.lists[w].end(), messages[w].begin(), messages[w].end());
  }
}

// The first worker with the value in its store; none if nobody has it.
WorkerId first_with(const Stores& stores, const Value& value) {
  for (size_t w = 0; w < stores.size(); ++w) {
    if (contains(stores[w], value)) return {static_cast<int32_t>(w)};
  }
  return {};
}

// Sends the value to each worker that needs it and does not have it; those that have it take turns.
void spread(Schedule& schedule, const Stores& stores, const Value& value,
            const std::vector<bool>& needs) {
  std::vector<WorkerId> givers;
  for (size_t w = 0; w < stores.size(); ++w) {
    if (contains(stores[w], value)) givers.push_back({static_cast<int32_t>(w)});
  }
  size_t index = 0;
  const auto part_of = [&](Op op) {
    op.part = value.part;
    return op;
  };
  for (size_t w = 0; w < needs.size(); ++w) {
    if (!needs[w] || contains(stores[w], value)) continue;
    const WorkerId giver = in_turn(givers, index++);
    schedule.lists[w].push_back(part_of(message(OpKind::Recv, value, giver)));
    schedule.lists[at(giver.value)].push_back(
        part_of(message(OpKind::Send, value, {static_cast<int32_t>(w)})));
  }
}

// Gives each total that is in some store to all holders of its stage; returns which stages have
// one.
std::vector<bool> copy_totals(Schedule& schedule, const std::vector<Stage>& stages,
                              const Stores& stores) {
  std::vector<bool> there(stages.size(), false);
  for (size_t s = stages.size(); s-- > 0;) {
    std::vector<bool> needs(stores.size(), false);
    for (const WorkerId holder : stages[s].holders) needs[at(holder.value)] = true;
    for (const int16_t part : {int16_t{-1}, int16_t{0}, int16_t{1}}) {
      const Value total{ValueKind::Total, part, {static_cast<int32_t>(s)}, {}};
      if (first_with(stores, total).value < 0) continue;
      there[s] = true;
      spread(schedule, stores, total, needs);
    }
  }
  return there;
}

}  // namespace

void insert_messages(Schedule& schedule, const Stores& stores) {
  const Makers makers(schedule, stores);
  for (size_t worker = 0; worker < schedule.lists.size(); ++worker) {
    const WorkerId self{static_cast<int32_t>(worker)};
    std::vector<Op> list;
    list.reserve(2 * schedule.lists[worker].size());
    for (const Value& value : stores.empty() ? std::vector<Value>{} : stores[worker]) {
      const WorkerId to = makers.reader(value);
      if (to.value >= 0 && to != self) list.push_back(message(OpKind::Send, value, to));
    }
    for (const Op& op : schedule.lists[worker]) {
      const Effect effect = effect_of(op, schedule.stage_count);
      for (const Value& value : effect.read) {
        const WorkerId from = makers.maker(value);
        if (from.value >= 0 && from != self) list.push_back(message(OpKind::Recv, value, from));
      }
      list.push_back(op);
      for (const Value& value : effect.write) {
        if (makers.maker(value) != self) continue;  // or it is in a store already
        const WorkerId to = makers.reader(value);
        if (to.value >= 0 && to != self) list.push_back(message(OpKind::Send, value, to));
      }
    }
    schedule.lists[worker] = std::move(list);
  }
}

Summings summings_of(const Schedule& schedule) {
  Summings summings;
  for (const Group& group : schedule.groups) {
    if (group.summing != Summing{}) summings[group.stages] = group.summing;
  }
  return summings;
}

Status check_all_reduce(const std::string& name) {
  if (name == kAutoAllReduce || name == kLateOne) return ok();
  std::vector<std::string_view> names = {kAutoAllReduce, kLateOne};
  for (const NamedAlgorithm& algorithm : algorithms()) {
    const AlgorithmCard& card = algorithm.card;
    if (card.goal != Goal::AllReduce || card.late_least > 0) continue;
    if (card.name == name) return ok();
    names.push_back(card.name);
  }
  std::string all;
  for (const std::string_view known : names) all += cat(all.empty() ? "" : ", ", known);
  const std::string near = nearest(name, names.data(), names.size());
  return invalid(cat("all-reduce '", name, "' cannot be used by a plan",
                     near.empty() ? std::string() : cat(", did you mean ", near, "?"),
                     " (known: ", all, ")"));
}

void append_update(Plan& plan, const Summings& summings) {
  Schedule& schedule = plan.schedule;
  const std::vector<Stage>& stages = plan.stages;
  // A single stage has no other norms to be ahead of.
  const bool ahead = plan.update.staggered = plan.update.staggered && stages.size() > 1;
  append_reductions(plan, summings);
  const NormWay way = norm_way(static_cast<int32_t>(stages.size()), ahead);
  if (ahead) {
    append_norms(schedule, stages, way);
    prepend_validation(schedule, stages, way.stages);
  } else {
    append_clip_decision(schedule, stages, way);
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const WorkerId holder : stages[s].holders) {
      schedule.lists[at(holder.value)].push_back(
          of_stage(ahead ? OpKind::StepAhead : OpKind::Step, {static_cast<int32_t>(s)}));
    }
  }
}

void append_update_left(Plan& plan, const Summings& summings, const Stores& stores,
                        const std::vector<std::vector<bool>>& stepped) {
  Schedule& schedule = plan.schedule;
  const std::vector<Stage>& stages = plan.stages;
  append_reductions(plan, summings, copy_totals(schedule, stages, stores));
  const auto steps_at = [&](size_t s, WorkerId holder) { return !stepped[s][at(holder.value)]; };
  const WorkerId giver = first_with(stores, {ValueKind::ClipDecision, -1, {0}, {}});
  if (giver.value < 0) {
    append_clip_decision(schedule, stages, norm_way(static_cast<int32_t>(stages.size()), false));
  } else {
    std::vector<bool> needs(stores.size(), false);
    for (size_t s = 0; s < stages.size(); ++s) {
      for (const WorkerId holder : stages[s].holders) {
        if (steps_at(s, holder)) needs[at(holder.value)] = true;
      }
    }
    spread(schedule, stores, {ValueKind::ClipDecision, -1, {0}, {}}, needs);
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const WorkerId holder : stages[s].holders) {
      if (!steps_at(s, holder)) continue;
      schedule.lists[at(holder.value)].push_back(of_stage(OpKind::Step, {static_cast<int32_t>(s)}));
    }
  }
}

namespace {

Plan with_new_update(Plan plan, const Summings& summings) {
  for (auto& list : plan.schedule.lists) std::erase_if(list, is_update);
  plan.schedule.groups.clear();
  plan.schedule.collectives.clear();
  append_update(plan, summings);
  return plan;
}

}  // namespace

Plan with_update(Plan plan, bool staggered) {
  if (plan.update.staggered == (staggered && plan.stages.size() > 1)) return plan;
  plan.update.staggered = staggered;
  return with_update_of_holders(std::move(plan));
}

Plan with_update_of_holders(Plan plan) {
  const Summings summings = summings_of(plan.schedule);
  return with_new_update(std::move(plan), summings);
}

bool sums_follow_cluster(const Schedule& schedule) {
  return schedule.all_reduce == kAutoAllReduce || schedule.all_reduce == kLateOne;
}

Plan with_all_reduce(Plan plan, const std::string& name) {
  plan.schedule.all_reduce = name;
  return with_new_update(std::move(plan), {});
}

Plan with_summing(Plan plan, const std::vector<StageId>& stages, const Summing& summing) {
  Summings summings = summings_of(plan.schedule);
  summings[stages] = summing;
  return with_new_update(std::move(plan), summings);
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

MemoryLimit memory_limit_of(int32_t memory, int32_t chunks, double late_share) {
  if (memory == 0) return {};
  constexpr int64_t kParts = 1000;  // of a micro-batch
  return {kParts * memory * chunks, kParts, std::llround(late_share * kParts)};
}

int64_t peak_of(const std::vector<Op>& list, const MemoryLimit& memory) {
  int64_t held = 0, peak = 0;
  for (const Op& op : list) {
    peak = std::max(peak, held += memory.change(op.kind));
  }
  return peak;
}

}  // namespace tenuto
