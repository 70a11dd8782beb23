#include "adapt/hash_cluster.h"

#include <algorithm>

#include "base/text.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "ir/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

uint64_t name_of(const Value& value) {
  return mix(static_cast<uint64_t>(value.kind), static_cast<uint64_t>(value.stage.value),
             static_cast<uint64_t>(value.micro.value + 1));
}

// A stage's parameters before the step, and after a step with this total.
uint64_t parameters_of(StageId stage) { return mix(77, static_cast<uint64_t>(stage.value)); }
uint64_t stepped_with(StageId stage, uint64_t total) { return mix(parameters_of(stage), total); }

// The hash of one value that an op writes, made from its inputs and these parameters.
uint64_t made(const Value& value, uint64_t parameters, uint64_t inputs) {
  return mix(name_of(value), parameters, inputs);
}

struct Member {
  bool alive = true;
  std::map<Value, uint64_t> store, kept;
  std::map<StageId, uint64_t> sums;        // of the weight gradients with a Partial in `store`
  std::map<StageId, uint64_t> parameters;  // of stages that have stepped
};

class HashCluster {
 public:
  HashCluster(const Plan& plan, const Disturbance& disturbance)
      : plan_(plan), disturbance_(disturbance), random_(disturbance.seed) {
    members_.resize(plan.schedule.lists.size());
    rest_.plan = plan;
    begin();
  }

  Ran run() {
    size_t next_kill = 0;
    for (;;) {
      if (!ran_.failure.empty()) return ran_;
      const auto& kills = disturbance_.kills;
      if (next_kill < kills.size() && ran_.events >= kills[next_kill].first) {
        members_[at(kills[next_kill++].second.value)].alive = false;
        recover();
        continue;
      }
      if (!move()) break;
    }
    judge();
    return ran_;
  }

 private:
  using Brought = std::map<WorkerId, uint64_t>;

  void fail(const std::string& what) {
    if (ran_.failure.empty()) ran_.failure = what;
  }

  void begin() {
    walks_.clear();
    under_way_.assign(members_.size(), {});
    for (size_t w = 0; w < members_.size(); ++w) {
      const auto stored =
          rest_.stores.empty() ? std::span<const Value>() : std::span<const Value>(rest_.stores[w]);
      walks_.emplace_back(rest_.plan, rest_.plan.schedule, WorkerId{static_cast<int32_t>(w)},
                          kReceivesAhead, stored);
    }
  }

  // Runs one event, drawn from all possible ones: the start of an op, or the end of one under way.
  bool move() {
    std::vector<std::pair<int32_t, int32_t>> starts, ends;
    for (size_t w = 0; w < walks_.size(); ++w) {
      if (!members_[w].alive) continue;
      for (const int32_t index : walks_[w].startable()) starts.emplace_back(w, index);
      for (const int32_t index : under_way_[w]) {
        if (may_end(w, walks_[w].op(index))) ends.emplace_back(w, index);
      }
    }
    const auto count = static_cast<int64_t>(starts.size() + ends.size());
    if (count == 0) return false;
    const auto worker_of = [&](size_t event) {
      return event < starts.size() ? starts[event].first : ends[event - starts.size()].first;
    };
    auto drawn = static_cast<size_t>(random_.below(count));
    for (int32_t again = 0; again < 30 && worker_of(drawn) == disturbance_.slow.value; ++again) {
      drawn = static_cast<size_t>(random_.below(count));
    }
    if (drawn < starts.size()) {
      start(starts[drawn].first, starts[drawn].second);
    } else {
      end(ends[drawn - starts.size()].first, ends[drawn - starts.size()].second);
    }
    return true;
  }

  void start(int32_t worker, int32_t index) {
    ++ran_.events;
    walks_[at(worker)].start(index);
    under_way_[at(worker)].insert(index);
    const Op& op = walks_[at(worker)].op(index);
    Member& member = members_[at(worker)];
    if (op.kind == OpKind::Send) {
      wire_[{{worker}, op.peer, moved_value(op)}] = read(member, moved_value(op));
    } else if (op.kind == OpKind::Reduce) {
      brought_[{op.group, op.stage, op.part}].try_emplace({worker}, member.sums[op.stage]);
    }
  }

  bool may_end(size_t worker, const Op& op) const {
    const WorkerId self{static_cast<int32_t>(worker)};
    if (op.kind == OpKind::Recv) return wire_.contains({op.peer, self, moved_value(op)});
    if (op.kind != OpKind::Reduce) return true;
    const auto found = brought_.find({op.group, op.stage, op.part});
    const auto& group = rest_.plan.schedule.groups[at(op.group.value)];
    return found != brought_.end() && found->second.size() >= group.members.size();
  }

  uint64_t read(const Member& member, const Value& value) {
    const auto found = member.store.find(value);
    if (found != member.store.end()) return found->second;
    fail(to_text(value) + " is not where the lists say");
    return 0;
  }

  void end(int32_t worker, int32_t index) {
    under_way_[at(worker)].erase(index);
    const Op op = walks_[at(worker)].op(index);
    Member& member = members_[at(worker)];
    run_op(member, {worker}, op);
    for (const Value& value : walks_[at(worker)].finish(index)) {
      if (op.kind == OpKind::Send && disturbance_.keep) {
        const bool lost = disturbance_.broken == Broken::NoKeep;
        member.kept[value] = lost ? 0 : read(member, value);
      }
      const bool stays = value.kind == ValueKind::Total || value.kind == ValueKind::Partial;
      if (stays && disturbance_.broken == Broken::FreeTotal) gone_.insert({{worker}, value});
      if (!stays) member.store.erase(value);
    }
  }

  void run_op(Member& member, WorkerId self, const Op& op) {
    uint64_t inputs = 0;
    const Effect effect = effect_of(op, plan_.schedule.stage_count);
    for (const Value& value : effect.read) {
      if (!means_every(value)) inputs = mix(inputs, read(member, value));
    }
    if (op.kind <= OpKind::BackwardWeight) ++ran_.ops;
    switch (op.kind) {
      case OpKind::Recv:
        member.store[moved_value(op)] = wire_[{op.peer, self, moved_value(op)}];
        return;
      case OpKind::Send:
        return;
      case OpKind::BackwardWeight:
        member.sums[op.stage] += inputs;
        break;
      case OpKind::Reduce: {
        uint64_t total = 0;
        for (const auto& [from, sum] : brought_[{op.group, op.stage, op.part}]) total += sum;
        member.store[{ValueKind::Total, op.part, op.stage, {}}] = total;
        if (disturbance_.broken == Broken::InPlace) member.sums[op.stage] = total;
        return;
      }
      case OpKind::Measure:  // this test does not check the norm
        for (const Value& value : effect.write) member.store[value] = 1;
        return;
      case OpKind::Step:
        member.parameters[op.stage] = stepped_with(op.stage, total_of(member, op.stage));
        return;
      default:
        break;
    }
    const auto stepped = member.parameters.find(op.stage);
    const uint64_t parameters =
        stepped == member.parameters.end() ? parameters_of(op.stage) : stepped->second;
    for (const Value& value : effect.write) member.store[value] = made(value, parameters, inputs);
  }

  // One hash of all buckets of a stage's total.
  uint64_t total_of(const Member& member, StageId stage) {
    uint64_t all = 0, count = 0;
    for (const auto& [value, total] : member.store) {
      if (value.kind == ValueKind::Total && value.stage == stage) {
        all = mix(all, total);
        ++count;
      }
    }
    if (count == 0) fail(cat("there is no total of stage ", stage, " to step with"));
    return all;
  }

  Inventory inventory_of(size_t worker) {
    Member& member = members_[worker];
    Inventory inventory;
    for (const auto& [stage, parameters] : member.parameters) inventory.stepped.push_back(stage);
    for (const auto& [value, hash] : member.store) {
      if (disturbance_.broken == Broken::Total && value.kind == ValueKind::Total) continue;
      inventory.values.push_back(value);
    }
    for (const auto& [value, hash] : member.kept) inventory.values.push_back(value);
    return inventory;
  }

  // The survivors stop. Messages in flight belong to the old epoch and are dropped.
  void recover() {
    wire_.clear();
    if (disturbance_.broken == Broken::InPlace) add_what_came();
    if (disturbance_.broken == Broken::Total) give_up_partials();
    if (disturbance_.broken != Broken::Stale) brought_.clear();
    std::vector<Inventory> inventories;
    std::vector<bool> alive;
    for (size_t w = 0; w < members_.size(); ++w) {
      inventories.push_back(inventory_of(w));
      alive.push_back(members_[w].alive);
    }
    auto rest = salvage(plan_, inventories, alive);
    if (!rest.ok()) return fail(rest.error().message);
    rest_ = std::move(rest).value();
    if (const Status right = check(rest_.plan, {}, rest_.stores); !right.ok()) {
      return fail("the rest is not right: " + right.error().message);
    }
    ran_.copied += rest_.totals_copied;
    ran_.back += static_cast<int32_t>(rest_.back.size());
    for (const auto& [worker, value] : gone_) members_[at(worker.value)].store.erase(value);
    for (const TakenBack& it : rest_.back) {
      members_[at(it.worker.value)].parameters.erase(it.stage);
    }
    for (size_t w = 0; w < members_.size(); ++w) take_over(w);
    if (disturbance_.broken == Broken::NoRedo) forget_owed();
    begin();
  }

  // Fills the store of the new list: the values that the rest begins with, from the old store or
  // from the kept values. A sum begins anew if the rest has no partial of it.
  void take_over(size_t worker) {
    Member& member = members_[worker];
    if (!member.alive) return;
    std::map<Value, uint64_t> store;
    std::set<StageId> summed;
    for (const Value& value : rest_.stores[worker]) {
      const auto kept = member.kept.find(value);
      store[value] = member.store.contains(value) || kept == member.kept.end() ? read(member, value)
                                                                               : kept->second;
      if (value.kind == ValueKind::Partial) summed.insert(value.stage);
    }
    member.store = std::move(store);
    std::erase_if(member.sums, [&](const auto& sum) { return !summed.contains(sum.first); });
  }

  void add_what_came() {
    for (size_t w = 0; w < members_.size(); ++w) {
      for (const int32_t index : under_way_[w]) {
        const Op& op = walks_[w].op(index);
        if (op.kind != OpKind::Reduce) continue;
        uint64_t sum = 0;
        for (const auto& [from, part] : brought_[{op.group, op.stage, op.part}]) sum += part;
        members_[w].sums[op.stage] = sum;
      }
    }
  }

  void give_up_partials() {
    for (Member& member : members_) {
      for (const auto& [value, total] : member.store) {
        if (value.kind == ValueKind::Total) member.sums[value.stage] = 0;
      }
    }
  }

  // Drops the ops of stages whose Step is taken back.
  void forget_owed() {
    for (const TakenBack& it : rest_.back) {
      std::erase_if(rest_.plan.schedule.lists[at(it.worker.value)], [&](const Op& op) {
        return op.stage == it.stage && op.kind <= OpKind::BackwardWeight;
      });
    }
  }

  // Checks that every live holder has stepped with the sum of all micro-batches, each once.
  void judge() {
    for (size_t w = 0; w < walks_.size(); ++w) {
      if (members_[w].alive && !walks_[w].done()) fail(cat("worker ", w, " hangs"));
    }
    const size_t stages = plan_.stages.size();
    std::vector<std::vector<uint64_t>> activations(stages + 1), gradients(stages + 1);
    for (size_t s = 0; s < stages; ++s) {
      for (const WorkerId holder : plan_.stages[s].holders) {
        const Member& member = members_[at(holder.value)];
        if (!member.alive) continue;
        const auto found = member.parameters.find({static_cast<int32_t>(s)});
        if (found == member.parameters.end())
          return fail(cat("worker ", holder, " has not stepped"));
        if (found->second != expected({static_cast<int32_t>(s)})) {
          return fail(cat("worker ", holder, " has stepped with a wrong total"));
        }
      }
    }
  }

  // The parameters after the step, computed by one plain pass over all micro-batches.
  uint64_t expected(StageId stage) const {
    const int32_t stages = plan_.schedule.stage_count;
    uint64_t sum = 0;
    for (int32_t m = 0; m < plan_.schedule.micro_count; ++m) {
      std::map<Value, uint64_t> store;
      const auto run = [&](OpKind kind, int32_t s) {
        Op op;
        op.kind = kind;
        op.stage = {s};
        op.micro = {m};
        uint64_t inputs = 0;
        const Effect effect = effect_of(op, stages);
        for (const Value& value : effect.read) inputs = mix(inputs, store[value]);
        for (const Value& value : effect.write) {
          store[value] = made(value, parameters_of(op.stage), inputs);
        }
        return inputs;
      };
      for (int32_t s = 0; s < stages; ++s) run(OpKind::Forward, s);
      for (int32_t s = stages - 1; s >= 0; --s) {
        run(OpKind::BackwardInput, s);
        const uint64_t gradient = run(OpKind::BackwardWeight, s);
        if (s == stage.value) sum += gradient;
      }
    }
    return stepped_with(stage, mix(0, sum));
  }

  const Plan& plan_;
  const Disturbance& disturbance_;
  Random random_;
  Ran ran_;
  Rest rest_;  // the plan in force, and the stores that it begins with
  std::vector<Member> members_;
  std::deque<Walk> walks_;
  std::vector<std::set<int32_t>> under_way_;
  std::map<std::tuple<WorkerId, WorkerId, Value>, uint64_t> wire_;
  std::map<std::tuple<GroupId, StageId, int16_t>, Brought> brought_;
  std::set<std::pair<WorkerId, Value>> gone_;
};

}  // namespace

Ran run_disturbed(const Plan& plan, const Disturbance& disturbance) {
  return HashCluster(plan, disturbance).run();
}

}  // namespace tenuto
