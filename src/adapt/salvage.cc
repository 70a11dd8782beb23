#include "adapt/salvage.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Forward, BackwardInput and BackwardWeight, as places in a table.
size_t row_of(OpKind kind) {
  return kind == OpKind::Forward ? 0 : kind == OpKind::BackwardInput ? 1 : 2;
}
constexpr std::array kRows = {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight};

// Where an op runs in the plan without the lost workers.
struct Home {
  WorkerId worker;
  size_t index = 0;  // among the worker's compute ops
};

// Finds which ops have to run, and where.
class Search {
 public:
  // `base`: the plan without the lost workers; its lists say who takes over their work.
  Search(const Plan& base, const std::vector<Inventory>& inventories)
      : base_(base), micros_(base.schedule.micro_count) {
    const size_t ops = base.stages.size() * at(micros_);
    for (size_t row = 0; row < kRows.size(); ++row) {
      place_[row].assign(ops, WorkerId{});
      home_[row].resize(ops);
    }
    find_homes();
    parts_.resize(base.stages.size());
    for (const auto& list : base.schedule.lists) {
      for (const Op& op : list) {
        if (op.kind == OpKind::Reduce) parts_[at(op.stage.value)].insert(op.part);
      }
    }
    have_.resize(inventories.size());
    uses_.resize(inventories.size());
    stepped_.assign(base.stages.size(), std::vector<bool>(inventories.size(), false));
    for (size_t s = 0; s < base.stages.size(); ++s) {
      for (const WorkerId holder : base.stages[s].holders) take_in(holder, inventories);
    }
  }

  Rest run(const std::vector<MicroId>& losses) {
    find_totals();
    for (int32_t s = static_cast<int32_t>(base_.stages.size()) - 1; s >= 0; --s) {
      if (whole_[at(s)]) continue;
      for (int32_t m = 0; m < micros_; ++m) need_weight({s}, {m});
    }
    const StageId last{static_cast<int32_t>(base_.stages.size()) - 1};
    for (const MicroId micro : losses) need_forward(last, micro, {});
    return finish();
  }

 private:
  void find_homes();
  void take_in(WorkerId worker, const std::vector<Inventory>& inventories);
  void find_totals();
  bool has_totals(WorkerId worker, size_t stage) const;
  void need_weight(StageId stage, MicroId micro);
  void need_backward(StageId stage, MicroId micro, bool weight);
  void need_forward(StageId stage, MicroId micro, WorkerId worker);
  void need_value(const Value& value, WorkerId worker);
  std::vector<TakenBack> take_back();
  Rest finish();

  size_t key(StageId stage, MicroId micro) const {
    return at(stage.value) * at(micros_) + at(micro.value);
  }
  WorkerId& place(OpKind kind, StageId stage, MicroId micro) {
    return place_[row_of(kind)][key(stage, micro)];
  }
  bool has(WorkerId worker, const Value& value) const {
    return have_[at(worker.value)].contains(value);
  }
  void use(WorkerId worker, const Value& value) { uses_[at(worker.value)].insert(value); }
  // The first live holder of the stage that has the value; none if there is nobody.
  WorkerId holder_with(StageId stage, const Value& value) const {
    for (const WorkerId holder : base_.stages[at(stage.value)].holders) {
      if (has(holder, value)) return holder;
    }
    return {};
  }

  const Plan& base_;
  int32_t micros_;
  std::array<std::vector<WorkerId>, 3> place_;  // by row and key: who will run it; none
  std::array<std::vector<Home>, 3> home_;
  std::vector<std::set<int16_t>> parts_;      // of each stage's gradient
  std::vector<std::set<Value>> have_, uses_;  // by worker
  std::vector<std::vector<bool>> stepped_;    // by stage and worker
  std::vector<bool> whole_;                   // by stage: a total of it is alive
};

void Search::find_homes() {
  for (size_t w = 0; w < base_.schedule.lists.size(); ++w) {
    size_t index = 0;
    for (const Op& op : base_.schedule.lists[w]) {
      if (is_message(op) || !has_micro(op)) continue;
      home_[row_of(op.kind)][key(op.stage, op.micro)] = {{static_cast<int32_t>(w)}, index++};
    }
  }
}

void Search::take_in(WorkerId worker, const std::vector<Inventory>& inventories) {
  const Inventory& inventory = inventories[at(worker.value)];
  have_[at(worker.value)] = {inventory.values.begin(), inventory.values.end()};
  for (const StageId stage : inventory.stepped) {
    stepped_[at(stage.value)][at(worker.value)] = true;
  }
}

bool Search::has_totals(WorkerId worker, size_t stage) const {
  return std::all_of(parts_[stage].begin(), parts_[stage].end(), [&](int16_t part) {
    return has(worker, {ValueKind::Total, part, {static_cast<int32_t>(stage)}, {}});
  });
}

// A stage is whole when one holder has all its totals; two stages that share a weight only if both
// are, since they reduce together.
void Search::find_totals() {
  for (size_t s = 0; s < base_.stages.size(); ++s) {
    const auto& holders = base_.stages[s].holders;
    whole_.push_back(std::any_of(holders.begin(), holders.end(),
                                 [&](WorkerId holder) { return has_totals(holder, s); }));
  }
  if (base_.update.tied) whole_.front() = whole_.back() = whole_.front() && whole_.back();
  for (size_t s = 0; s < base_.stages.size(); ++s) {
    for (const WorkerId holder : base_.stages[s].holders) {
      const Value clip_decision{ValueKind::ClipDecision, -1, {0}, {}};
      if (has(holder, clip_decision)) use(holder, clip_decision);
      if (!whole_[s] || !has_totals(holder, s)) continue;
      for (const int16_t part : parts_[s]) {
        use(holder, {ValueKind::Total, part, {static_cast<int32_t>(s)}, {}});
      }
    }
  }
}

// Makes sure that the micro-batch's weight gradient gets into the sum of the stage.
void Search::need_weight(StageId stage, MicroId micro) {
  const Value partial{ValueKind::Partial, -1, stage, micro};
  const Value work{ValueKind::WeightWork, -1, stage, micro};
  if (const WorkerId has_it = holder_with(stage, partial); has_it.value >= 0) {
    use(has_it, partial);
  } else if (const WorkerId has_work = holder_with(stage, work); has_work.value >= 0) {
    use(has_work, work);
    place(OpKind::BackwardWeight, stage, micro) = has_work;
  } else {
    need_backward(stage, micro, true);
  }
}

void Search::need_backward(StageId stage, MicroId micro, bool weight) {
  WorkerId& here = place(OpKind::BackwardInput, stage, micro);
  if (here.value >= 0) return;
  const Value stash{ValueKind::Stash, -1, stage, micro};
  here = place(OpKind::Forward, stage, micro);
  if (here.value < 0) {
    here = holder_with(stage, stash);
    if (here.value >= 0) {
      use(here, stash);
    } else {
      here = home_[row_of(OpKind::BackwardInput)][key(stage, micro)].worker;
      need_forward(stage, micro, here);
    }
  }
  if (weight) place(OpKind::BackwardWeight, stage, micro) = here;
  if (at(stage.value) + 1 == base_.stages.size()) return;
  need_value({ValueKind::Gradient, -1, {stage.value + 1}, micro}, here);
}

// Makes sure that a forward runs at `worker`; none = anywhere, best at the holder of its stash.
void Search::need_forward(StageId stage, MicroId micro, WorkerId worker) {
  WorkerId& here = place(OpKind::Forward, stage, micro);
  if (here.value >= 0) return;
  here = worker;
  if (here.value < 0) here = holder_with(stage, {ValueKind::Stash, -1, stage, micro});
  if (here.value < 0) here = home_[row_of(OpKind::Forward)][key(stage, micro)].worker;
  if (stage.value > 0) need_value({ValueKind::Activation, -1, {stage.value - 1}, micro}, here);
}

// Makes sure that the worker gets an activation or a gradient: it has the value already, another
// worker sends it again, or it is made again.
void Search::need_value(const Value& value, WorkerId worker) {
  if (has(worker, value)) return use(worker, value);
  for (const int32_t s : {value.stage.value, value.stage.value - 1, value.stage.value + 1}) {
    if (s < 0 || at(s) >= base_.stages.size()) continue;
    const WorkerId keeper = holder_with({s}, value);
    if (keeper.value >= 0) return use(keeper, value);
  }
  if (value.kind == ValueKind::Activation) return need_forward(value.stage, value.micro, {});
  need_backward(value.stage, value.micro, false);
}

// Takes back a Step if its worker has anything of the stage to run or to reduce. Steps that are not
// taken back stay in stepped_.
std::vector<TakenBack> Search::take_back() {
  std::set<TakenBack> back;
  for (size_t s = 0; s < base_.stages.size(); ++s) {
    for (const WorkerId holder : base_.stages[s].holders) {
      if (!stepped_[s][at(holder.value)]) continue;
      bool runs = !whole_[s] || !has_totals(holder, s);
      for (const auto& row : place_) {
        for (int32_t m = 0; m < micros_ && !runs; ++m) {
          runs = row[s * at(micros_) + at(m)] == holder;
        }
      }
      if (!runs) continue;
      back.insert({holder, {static_cast<int32_t>(s)}});
      stepped_[s][at(holder.value)] = false;
    }
  }
  return {back.begin(), back.end()};
}

Rest Search::finish() {
  Rest rest;
  std::vector<std::vector<Placed>> placed(uses_.size());
  for (size_t row = 0; row < kRows.size(); ++row) {
    for (size_t k = 0; k < place_[row].size(); ++k) {
      const WorkerId worker = place_[row][k];
      if (worker.value < 0) continue;
      Op op;
      op.kind = kRows[row];
      op.stage = {static_cast<int32_t>(k / at(micros_))};
      op.micro = {static_cast<int32_t>(k % at(micros_))};
      placed[at(worker.value)].push_back({home_[row][k].index, op});
      // A value that is made again here need not be in the store before.
      for (const Value& value : effect_of(op, base_.schedule.stage_count).write) {
        uses_[at(worker.value)].erase(value);
      }
      ++rest.ops;
    }
  }
  rest.plan = base_;
  Schedule& schedule = rest.plan.schedule;
  schedule.groups.clear();
  schedule.collectives.clear();
  for (size_t w = 0; w < placed.size(); ++w) {
    schedule.lists[w] = merge(std::move(placed[w]));
    rest.stores.emplace_back(uses_[w].begin(), uses_[w].end());
  }
  rest.back = take_back();
  insert_messages(schedule, rest.stores);
  append_update_left(rest.plan, summings_of(base_.schedule), rest.stores, stepped_);
  for (size_t w = 0; w < uses_.size(); ++w) {
    for (const Op& op : schedule.lists[w]) {
      if (op.kind != OpKind::Send) continue;
      if (op.moved == ValueKind::Total) ++rest.totals_copied;
      if (has_micro(op) && uses_[w].contains(moved_value(op))) ++rest.sent_again;
    }
  }
  return rest;
}

}  // namespace

Result<Rest> salvage(const Plan& plan, const std::vector<Inventory>& inventories,
                     const std::vector<bool>& alive, const std::vector<MicroId>& losses) {
  CHECK(inventories.size() == plan.schedule.lists.size(), "an inventory for each worker");
  auto base = without_workers(plan, alive);
  if (!base.ok()) return base.error();
  const bool begun = std::any_of(inventories.begin(), inventories.end(), [](const Inventory& it) {
    return !it.values.empty() || !it.stepped.empty();
  });
  if (plan.update.staggered) {
    if (begun) {
      return Error{
          Code::Infeasible, Reach::Call,
          "a step of a staggered plan can only be replayed: the inventories must be empty"};
    }
    Rest rest;
    rest.plan = std::move(base).value();
    rest.stores.resize(inventories.size());
    rest.ops = 3 * plan.schedule.stage_count * plan.schedule.micro_count;
    return rest;
  }
  return Search(base.value(), inventories).run(losses);
}

Result<Remedy> recover(const Plan& plan, const std::vector<Inventory>& inventories,
                       const std::vector<bool>& alive, const Model& model, const Cluster& cluster,
                       const std::vector<MicroId>& losses) {
  const auto priced = [&](const Rest& rest) {
    PriceOptions options;
    options.lower_bound = false;
    const bool empty = std::all_of(rest.stores.begin(), rest.stores.end(),
                                   [](const auto& store) { return store.empty(); });
    if (!empty) options.stores = &rest.stores;
    return price(rest.plan, model, cluster, options);
  };
  std::vector<Inventory> nothing(inventories.size());
  const bool staggered = plan.update.staggered;
  for (size_t w = 0; w < nothing.size() && !staggered; ++w) {
    nothing[w].stepped = inventories[w].stepped;
  }
  auto replay = salvage(plan, nothing, alive);
  if (!replay.ok()) return replay.error();
  const auto replay_price = priced(replay.value());
  if (!replay_price.ok()) return replay_price.error();
  Remedy made;
  made.replay = made.price = replay_price.value().makespan;
  made.replayed = true;
  const auto abandon = [&](const std::string& reason) {
    made.rest = std::move(replay).value();
    made.reason = "the step is abandoned and replayed: " + reason;
    return made;
  };
  if (staggered)
    return abandon("the plan is staggered, so its stages take their updates at different times");
  auto rest = salvage(plan, inventories, alive, losses);
  if (!rest.ok()) return rest.error();
  if (const Status right = check(rest.value().plan, {}, rest.value().stores); !right.ok()) {
    return abandon("the ops that are left cannot be run: " + right.error().message);
  }
  const auto rest_price = priced(rest.value());
  if (!rest_price.ok()) return abandon(rest_price.error().message);
  if (rest_price.value().makespan >= made.replay)
    return abandon("a replay takes no longer than the ops that are left");
  made.rest = std::move(rest).value();
  made.price = rest_price.value().makespan;
  made.replayed = false;
  made.reason = cat(
      made.rest.ops, " ops are left of ", 3 * plan.schedule.stage_count * plan.schedule.micro_count,
      ", ", made.rest.sent_again, " values are sent again and ", made.rest.totals_copied,
      " totals copied: ", to_milliseconds(made.replay - made.price), " ms less than a replay");
  return made;
}

}  // namespace tenuto
