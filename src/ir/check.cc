#include "ir/check.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "ir/checker.h"
#include "ir/effect.h"
#include "ir/walk.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

PlanFault job_fault(std::string message) {
  return Error{Code::Invalid, Reach::Job, std::move(message)};
}

bool can_travel(ValueKind kind) {
  return kind == ValueKind::Activation || kind == ValueKind::Gradient || kind == ValueKind::Norm ||
         kind == ValueKind::ClipDecision;
}
}  // namespace

PlanFault Checker::check_counts() {
  if (at(schedule_.stage_count) != plan_.stages.size()) {
    return plain(cat("the schedule is for ", schedule_.stage_count, " stages and the plan has ",
                     plan_.stages.size()));
  }
  if (schedule_.lists.size() != plan_.schedule.lists.size()) {
    return plain(cat("there are ", schedule_.lists.size(), " lists for ",
                     plan_.schedule.lists.size(), " workers"));
  }
  if (schedule_.micro_count < (evaluation_ ? 0 : 1)) {
    return plain(cat("micro_count is ", schedule_.micro_count, ": expected at least 1"));
  }
  int64_t ops = 0;
  for (const auto& ops_of_worker : schedule_.lists)
    ops += static_cast<int64_t>(ops_of_worker.size());
  if (ops > 1'000'000'000 || int64_t{micro_first()} + schedule_.micro_count > 2'000'000'000) {
    return plain(
        "the schedule has more than 1,000,000,000 ops or micro-batches: too many to number");
  }
  held_.resize(schedule_.lists.size());
  for (size_t s = 0; s < plan_.stages.size(); ++s) {
    for (const WorkerId holder : plan_.stages[s].holders) {
      held_[at(holder.value)].push_back({static_cast<int32_t>(s)});
    }
  }
  return {};
}

PlanFault Checker::check_fields() {
  for (int32_t w = 0; w < worker_count(); ++w) {
    const auto& ops = list({w});
    for (size_t i = 0; i < ops.size(); ++i) {
      const OpPlace place{{w}, static_cast<int32_t>(i)};
      if (PlanFault found = check_op(place, ops[i])) return found;
    }
  }
  return {};
}

PlanFault Checker::check_op(OpPlace place, const Op& op) const {
  const bool belongs =
      evaluation_ ? op.kind == OpKind::Evaluate || is_message(op) : op.kind != OpKind::Evaluate;
  if (!belongs) {
    return fault(place, evaluation_ ? "a held-out pass has Evaluate ops and messages only"
                                    : "an Evaluate op belongs to the held-out pass");
  }
  if (op.stage.value < 0 || op.stage.value >= schedule_.stage_count) {
    return fault(place, cat("there is no stage ", op.stage.value, " of ", schedule_.stage_count));
  }
  if (has_micro(op)) {
    const int32_t end = micro_first() + schedule_.micro_count;
    if (op.micro.value < micro_first() || op.micro.value >= end) {
      return fault(place, cat("there is no micro-batch ", op.micro.value, ": expected ",
                              micro_first(), " to ", end - 1));
    }
  } else if (op.micro.value != -1) {
    return fault(place, "this op is of the whole step and must not name a micro-batch");
  }
  if (is_message(op)) {
    const bool total = resumed() && op.moved == ValueKind::Total;
    if (!total && (!can_travel(op.moved) || op.part != -1)) {
      return fault(place, "this value cannot travel");
    }
    if (op.peer.value < 0 || op.peer.value >= worker_count() || op.peer == place.worker) {
      return fault(place, cat("the peer must be another worker of ", worker_count(), ", found ",
                              op.peer.value));
    }
    return {};
  }
  if (op.kind == OpKind::Reduce &&
      (op.group.value < 0 || at(op.group.value) >= schedule_.groups.size())) {
    return fault(place, cat("there is no group ", op.group.value, " of ", schedule_.groups.size()));
  }
  if (slot_of(place.worker, op.stage) < 0) {
    return fault(place, cat("worker ", place.worker, " does not hold stage ", op.stage,
                            ": give the op to a holder or make it one"));
  }
  return {};
}

// Every micro-batch has exactly one op of `kind` at every stage; notes who has it.
PlanFault Checker::check_kind(OpKind kind, std::vector<OpPlace>& owner) const {
  const int64_t wanted = int64_t{schedule_.stage_count} * schedule_.micro_count;
  int64_t count = 0;
  for (const auto& ops : schedule_.lists) {
    count += std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return op.kind == kind; });
  }
  // If there are too few ops, one of the first count + 1 pairs of micro-batch and stage has none,
  // so count + 1 places are enough.
  owner.assign(static_cast<size_t>(std::min(wanted, count + 1)), OpPlace{});
  for (int32_t w = 0; w < worker_count(); ++w) {
    const auto& ops = list({w});
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != kind) continue;
      const int64_t key =
          int64_t{ops[i].micro.value - micro_first()} * schedule_.stage_count + ops[i].stage.value;
      if (key >= static_cast<int64_t>(owner.size())) continue;
      OpPlace& place = owner[static_cast<size_t>(key)];
      const OpPlace here{{w}, static_cast<int32_t>(i)};
      if (place.index >= 0) {
        return fault(here, cat(to_text(ops[i]), " runs twice: worker ", place.worker,
                               " has it as op ", place.index, " too; drop one"));
      }
      place = here;
    }
  }
  for (size_t key = 0; key < owner.size(); ++key) {
    if (owner[key].index >= 0) continue;
    Op op;
    op.kind = kind;
    op.stage = {static_cast<int32_t>(key % at(schedule_.stage_count))};
    op.micro = {micro_first() + static_cast<int32_t>(key / at(schedule_.stage_count))};
    std::vector<Mark> marks;
    for (const WorkerId holder : plan_.stages[at(op.stage.value)].holders) {
      marks.push_back({holder, static_cast<int32_t>(list(holder).size())});
    }
    return plain(cat("no worker runs ", to_text(op), ": add it to a list of a holder of stage ",
                     op.stage, "\n", table(schedule_, marks)));
  }
  return {};
}

PlanFault Checker::check_work() {
  if (evaluation_) {
    std::vector<OpPlace> owner;
    return check_kind(OpKind::Evaluate, owner);
  }
  if (resumed()) return check_rest();
  std::vector<OpPlace> forward;
  if (PlanFault found = check_kind(OpKind::Forward, forward)) return found;
  for (const OpKind kind : {OpKind::BackwardInput, OpKind::BackwardWeight}) {
    std::vector<OpPlace> backward;
    if (PlanFault found = check_kind(kind, backward)) return found;
    for (size_t key = 0; key < forward.size(); ++key) {
      if (forward[key].worker == backward[key].worker) continue;
      return fault(backward[key],
                   cat("the forward of this micro-batch runs at worker ", forward[key].worker,
                       ": all its ops of a stage must run at", " one worker, where its stash is"));
    }
  }
  return {};
}

PlanFault Checker::check_twice(OpKind kind) const {
  std::map<std::pair<StageId, MicroId>, OpPlace> seen;
  for (int32_t w = 0; w < worker_count(); ++w) {
    const auto& ops = list({w});
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != kind) continue;
      const OpPlace here{{w}, static_cast<int32_t>(i)};
      const auto [before, fresh] = seen.try_emplace({ops[i].stage, ops[i].micro}, here);
      if (fresh) continue;
      return fault(here, cat(to_text(ops[i]), " runs twice: worker ", before->second.worker,
                             " has it as op ", before->second.index, " too; drop one"));
    }
  }
  return {};
}

// The rest of a step: no op is listed twice, each weight gradient enters its stage's sum once.
PlanFault Checker::check_rest() const {
  for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
    if (PlanFault found = check_twice(kind)) return found;
  }
  std::map<std::pair<StageId, MicroId>, int32_t> sums;
  for (int32_t w = 0; w < worker_count(); ++w) {
    for (const Op& op : list({w})) {
      if (op.kind == OpKind::BackwardWeight) ++sums[{op.stage, op.micro}];
    }
    for (const Value& value : store(w)) {
      if (value.kind == ValueKind::Partial) ++sums[{value.stage, value.micro}];
    }
  }
  for (int32_t s = 0; s < schedule_.stage_count; ++s) {
    const int32_t wanted = has_total(-1, {s}) ? 0 : 1;
    for (int32_t m = 0; m < schedule_.micro_count; ++m) {
      const auto found = sums.find({{s}, {m}});
      const int32_t count = found == sums.end() ? 0 : found->second;
      if (count == wanted) continue;
      return plain(cat("the weight gradient of micro-batch ", m, " comes ", count,
                       " times into the sum of stage ", s, ", expected ", wanted,
                       wanted == 0 ? ": the total is there" : "", "\n", table(schedule_, {})));
    }
  }
  return {};
}

// Under ready dispatch, ops that add to a sum must stand in micro-batch order, so that sums repeat
// bit for bit: weight gradients (with a whole backward, input gradients) and held-out losses. Other
// ops may stand in any order; the walk decides whether that order deadlocks. Under listed dispatch
// the list fixes the order of the sums.
PlanFault Checker::check_order() const {
  if (plan_.dispatch == Dispatch::Listed) return {};
  for (int32_t w = 0; w < worker_count(); ++w) {
    // The last micro-batch of each kind of op at each stage that the worker holds.
    std::array<std::vector<MicroId>, 3> last;
    last.fill(std::vector<MicroId>(held_[at(w)].size()));
    const auto& ops = list({w});
    for (size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const bool whole = op.kind == OpKind::BackwardInput && !plan_.split_backward;
      if (op.kind != OpKind::BackwardWeight && op.kind != OpKind::Evaluate && !whole) continue;
      const size_t kind = op.kind == OpKind::Evaluate ? 2 : whole ? 1 : 0;
      MicroId& before = last[kind][at(slot_of({w}, op.stage))];
      if (op.micro < before) {
        return fault({{w}, static_cast<int32_t>(i)},
                     cat("it stands behind micro-batch ", before,
                         ": under ready dispatch what is summed must stand in ascending order of "
                         "micro-batches; sort it or take listed dispatch"));
      }
      before = op.micro;
    }
  }
  return {};
}

// The error at the op where a worker holds the most micro-batches, with the bytes of its stashes if
// they are known.
PlanFault Checker::too_many(WorkerId worker, int32_t index, int32_t peak, int32_t limit) const {
  std::vector<int64_t> held;  // of each stage, in bytes and in the order of forwards
  for (int32_t i = 0; i <= index; ++i) {
    const Op& op = list(worker)[at(i)];
    const bool known = at(op.stage.value) < sizes_.of.size();
    const int64_t bytes =
        known ? sizes_.of[at(op.stage.value)][at(int(ValueKind::Stash))].count : 0;
    if (op.kind == OpKind::Forward) held.push_back(bytes);
    const auto freed = std::find(held.begin(), held.end(), bytes);
    if (op.kind == OpKind::BackwardWeight && freed != held.end()) held.erase(freed);
  }
  int64_t all = 0, allowed = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    all += held[i];
    if (i < at(limit)) allowed += held[i];
  }
  const std::string bytes =
      all > 0 ? cat(" (", all, " bytes, ", all - allowed, " more than that)") : std::string();
  return fault(
      {worker, index},
      cat("here it would hold ", peak, " micro-batches, ", peak - limit, " more than its limit of ",
          limit, bytes, ": raise the limit to ", peak, " or run weight gradients sooner"),
      Code::Exhausted, Reach::Worker);
}

PlanFault Checker::check_memory(WorkerId worker, const MemoryLimit& memory) const {
  if (memory.most == 0) return {};
  const auto& ops = schedule_.lists[at(worker.value)];
  int64_t held = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    held += memory.change(ops[i].kind);
    if (held <= memory.most) continue;
    return fault(
        {worker, static_cast<int32_t>(i)},
        cat("here it would hold ", held, " and its memory limit is ", memory.most,
            " (a micro-batch takes ", memory.whole, " up to its input gradient and ", memory.late,
            " up to its weight gradient): raise the memory limit or run ", "backwards sooner"),
        Code::Exhausted, Reach::Worker);
  }
  return {};
}

// Under listed dispatch, only the order of the lists can keep the limits.
PlanFault Checker::check_memory() const {
  if (plan_.dispatch != Dispatch::Listed || evaluation_) return {};
  for (size_t w = 0; w < plan_.limits.size(); ++w) {
    const Limit& limit = plan_.limits[w];
    const auto& ops = schedule_.lists[w];
    int32_t held = 0, peak = 0, peak_index = 0, ahead = 0, first_backward = -1, forwards = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind == OpKind::BackwardWeight) --held;
      if (ops[i].kind == OpKind::BackwardInput && first_backward < 0) {
        first_backward = static_cast<int32_t>(i);
        ahead = forwards;
      }
      if (ops[i].kind != OpKind::Forward) continue;
      ++forwards;
      if (++held <= peak) continue;
      peak = held;
      peak_index = static_cast<int32_t>(i);
    }
    const WorkerId worker{static_cast<int32_t>(w)};
    if (limit.micros > 0 && peak > limit.micros) {
      return too_many(worker, peak_index, peak, limit.micros);
    }
    if (PlanFault over_memory = check_memory(worker, limit.memory)) return over_memory;
    if (first_backward >= 0 && ahead < std::min(limit.warm_up, forwards)) {
      return fault({worker, first_backward},
                   cat("the first backward comes after ", ahead,
                       " forwards, and the limit requires", " ", limit.warm_up));
    }
  }
  return {};
}

PlanFault Checker::stuck(const Standstill& standstill, int64_t count, int64_t total) const {
  const Explanation explanation = explain(standstill);
  const bool ready = plan_.dispatch == Dispatch::Ready;
  return plain(cat(
      "nothing can move after ", count, " of ", total, " ops under ", ready ? "ready" : "listed",
      " dispatch: ", explanation.sentence, "; change the lists ", ready ? "or the limits " : "",
      "so that what each waits for comes first\n", table(schedule_, explanation.marks)));
}

// Runs the lists without a clock. Every way to run them starts the same ops (see Walk), so one run
// decides for every timing.
PlanFault Checker::check_progress() {
  std::vector<Walk> walks;
  walks.reserve(schedule_.lists.size());
  for (int32_t w = 0; w < worker_count(); ++w) {
    walks.emplace_back(plan_, schedule_, WorkerId{w}, kReceivesAhead, store(w));
    const int32_t twice = walks.back().double_writer();
    if (twice >= 0) {
      return fault({{w}, twice}, "another op of this list makes the same value: double work");
    }
    const int32_t again = walks.back().double_reader();
    if (again >= 0) {
      return fault({{w}, again}, "another op of this list uses up the same value: drop one");
    }
  }
  std::vector<std::vector<OpPlace>> at_group(schedule_.groups.size());
  std::vector<bool> started(at(pairing_.first.back()), false);
  std::vector<bool> ended(started.size(), false);
  std::deque<int32_t> busy;
  std::vector<bool> queued(schedule_.lists.size(), true);
  for (int32_t w = 0; w < worker_count(); ++w) busy.push_back(w);
  int64_t count = 0;
  const auto finish = [&](OpPlace place) {
    walks[at(place.worker.value)].finish(place.index);
    ended[at(pairing_.number(place.worker, place.index))] = true;
    ++count;
    if (!queued[at(place.worker.value)]) busy.push_back(place.worker.value);
    queued[at(place.worker.value)] = true;
  };
  while (!busy.empty()) {
    const WorkerId self{busy.front()};
    busy.pop_front();
    queued[at(self.value)] = false;
    Walk& walk = walks[at(self.value)];
    for (auto able = walk.startable(); !able.empty(); able = walk.startable()) {
      const OpPlace here{self, able.front()};
      const Op& op = walk.op(here.index);
      walk.start(here.index);
      const int32_t number = pairing_.number(self, here.index);
      started[at(number)] = true;
      if (is_message(op)) {
        const int32_t other = pairing_.partner[at(number)];
        if (!started[at(other)]) continue;
        finish(here);
        finish({op.peer, pairing_.index_of(other)});
      } else if (op.kind == OpKind::Reduce) {
        auto& waiting = at_group[at(op.group.value)];
        waiting.push_back(here);
        if (waiting.size() < schedule_.groups[at(op.group.value)].members.size()) continue;
        for (const OpPlace& place : waiting) finish(place);
      } else {
        finish(here);
      }
    }
  }
  if (count < pairing_.first.back()) {
    return stuck({schedule_, pairing_, walks, started, ended}, count, pairing_.first.back());
  }
  for (int32_t w = 0; w < worker_count(); ++w) {
    for (const Value& value : walks[at(w)].stored()) {
      if (lives_to_end(value.kind) || resumed()) continue;
      return fault({{w}, static_cast<int32_t>(list({w}).size())},
                   cat(to_text(value), " is still stored at the end: nobody needs it, or an op",
                       " that frees it is missing"));
    }
  }
  return {};
}

namespace {

// Checks that no layer is missing between stages, and that holders, limits and groups are valid.
PlanFault check_stages(const Plan& plan) {
  const auto worker_count = static_cast<int32_t>(plan.schedule.lists.size());
  if (plan.stages.empty() || worker_count == 0) {
    return job_fault("a plan needs at least one stage and one worker");
  }
  int32_t layer = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.layer_first != layer || stage.layer_end <= layer) {
      return job_fault(cat("stage ", s, " has layers ", stage.layer_first, " to ", stage.layer_end,
                           ": expected a run that starts at ", layer));
    }
    layer = stage.layer_end;
    if (stage.holders.empty()) return job_fault(cat("stage ", s, " has no holder"));
    std::vector<WorkerId> holders = stage.holders;
    std::sort(holders.begin(), holders.end());
    const auto twice = std::adjacent_find(holders.begin(), holders.end());
    const bool below = holders.front().value < 0, above = holders.back().value >= worker_count;
    if (below || above || twice != holders.end()) {
      const WorkerId wrong = below ? holders.front() : above ? holders.back() : *twice;
      return job_fault(cat("stage ", s, " must name different workers of 0 to ", worker_count - 1,
                           " as its holders: it names worker ", wrong,
                           below || above ? "" : " twice"));
    }
  }
  if (!plan.limits.empty() && plan.limits.size() != plan.schedule.lists.size()) {
    return job_fault(cat("there are ", plan.limits.size(), " limits for ", worker_count,
                         " workers: expected one for each, or none"));
  }
  for (size_t w = 0; w < plan.limits.size(); ++w) {
    const Limit& limit = plan.limits[w];
    const MemoryLimit& memory = limit.memory;
    if (limit.micros < 0 || limit.warm_up < 0 ||
        std::min({memory.most, memory.whole, memory.late}) < 0) {
      return job_fault(cat("worker ", w, " has a limit below 0"));
    }
    if (std::max({memory.most, memory.whole, memory.late}) > kMostMemory) {
      return job_fault(cat("worker ", w, " has a memory limit above ", kMostMemory));
    }
    if (memory.late > memory.whole) {
      return job_fault(cat("worker ", w, " has a memory limit in which a micro-batch takes ",
                           memory.late, " after its input gradient and only ", memory.whole,
                           " before"));
    }
  }
  for (const Schedule* schedule : {&plan.schedule, &plan.evaluation}) {
    for (const Group& group : schedule->groups) {
      for (const StageId stage : group.stages) {
        if (stage.value >= 0 && at(stage.value) < plan.stages.size()) continue;
        return job_fault(cat("a group names stage ", stage.value, " of ", plan.stages.size()));
      }
    }
  }
  return {};
}

}  // namespace

Status check(const Plan& plan, const Sizes& sizes, const Stores& stores) {
  CHECK(stores.empty() || stores.size() == plan.schedule.lists.size(), "a store for each worker");
  if (PlanFault fault = check_stages(plan)) return *fault;
  if (PlanFault fault = Checker(plan, plan.schedule, false, sizes, stores).run()) return *fault;
  const bool no_pass = plan.evaluation == Schedule{};
  if (!no_pass) {
    if (PlanFault fault = Checker(plan, plan.evaluation, true, sizes, {}).run()) return *fault;
  }
  return ok();
}

}  // namespace tenuto
