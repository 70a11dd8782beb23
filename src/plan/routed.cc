#include "plan/routed.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/contains.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/copies.h"
#include "plan/lower.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// A number for the pipeline of each worker: the worker's lowest micro-batch in the held-out pass;
// -1 = the worker has none.
std::vector<int32_t> pipelines_of(const Schedule& evaluation, size_t workers) {
  std::vector<int32_t> pipelines(workers, -1);
  for (size_t w = 0; w < evaluation.lists.size(); ++w) {
    for (const Op& op : evaluation.lists[w]) {
      if (op.kind != OpKind::Evaluate) continue;
      if (pipelines[w] < 0 || op.micro.value < pipelines[w]) pipelines[w] = op.micro.value;
    }
  }
  return pipelines;
}

// Deals the held-out micro-batches to the holders of each stage.
class Dealer {
 public:
  Dealer(const Plan& plan, const std::vector<Stage>& stages, int32_t micros)
      : first_(plan.schedule.micro_count),
        pipelines_(pipelines_of(plan.evaluation, plan.schedule.lists.size())),
        homes_(at(micros), -1),
        loads_(stages.size(), std::vector<int32_t>(plan.schedule.lists.size(), 0)) {
    size_t fewest = stages.front().holders.size();
    for (const Stage& stage : stages) fewest = std::min(fewest, stage.holders.size());
    for (size_t w = 0; w < plan.evaluation.lists.size(); ++w) {
      for (const Op& op : plan.evaluation.lists[w]) {
        if (op.kind == OpKind::Evaluate && op.stage.value == 0) {
          homes_[at(op.micro.value - first_)] = pipelines_[w];
        }
      }
    }
    share_ = (micros + static_cast<int32_t>(fewest) - 1) / static_cast<int32_t>(fewest);
  }

  // The worker that runs the next micro-batch at `stage`, after a worker of `pipeline` ran it at
  // the stage before: a holder of that pipeline with less than its share, else the holder with the
  // fewest micro-batches.
  WorkerId next(size_t stage, const std::vector<WorkerId>& holders, int32_t pipeline) {
    std::vector<int32_t>& loads = loads_[stage];
    WorkerId chosen = holders.front();
    for (const WorkerId holder : holders) {
      if (loads[at(holder.value)] < loads[at(chosen.value)]) chosen = holder;
    }
    for (const WorkerId holder : holders) {
      if (pipeline < 0 || pipelines_[at(holder.value)] != pipeline) continue;
      if (loads[at(holder.value)] < share_) chosen = holder;
    }
    ++loads[at(chosen.value)];
    return chosen;
  }
  // The pipeline of a worker; -1 = not known.
  int32_t pipeline_of(WorkerId worker) const { return pipelines_[at(worker.value)]; }
  // The pipeline in which a micro-batch begins in the plan as it was.
  int32_t home_of(MicroId micro) const { return homes_[at(micro.value - first_)]; }

 private:
  int32_t first_;
  std::vector<int32_t> pipelines_, homes_;   // by worker; by micro-batch
  std::vector<std::vector<int32_t>> loads_;  // by stage and worker
  int32_t share_ = 0;
};

// Each list has the order of a wave: every op stands behind the ops that it needs.
Schedule make_evaluation(const Plan& plan, std::vector<Stage> stages,
                         const std::vector<std::vector<WorkerId>>& idle) {
  Schedule made;
  if (plan.evaluation == Schedule{}) return made;
  for (size_t s = 0; s < idle.size(); ++s) {
    std::erase_if(stages[s].holders, [&](WorkerId holder) { return contains(idle[s], holder); });
  }
  made.stage_count = plan.evaluation.stage_count;
  made.micro_count = plan.evaluation.micro_count;
  made.lists.resize(plan.schedule.lists.size());
  Dealer dealer(plan, stages, made.micro_count);
  const auto abreast = static_cast<int32_t>(stages.front().holders.size());
  for (int32_t k = 0; k < made.micro_count; ++k) {
    const MicroId micro{plan.schedule.micro_count + k};
    int32_t pipeline = dealer.home_of(micro);
    for (size_t s = 0; s < stages.size(); ++s) {
      Op op;
      op.kind = OpKind::Evaluate;
      op.stage = {static_cast<int32_t>(s)};
      op.micro = micro;
      const WorkerId worker = dealer.next(s, stages[s].holders, pipeline);
      pipeline = dealer.pipeline_of(worker);
      made.lists[at(worker.value)].push_back(op);
    }
  }
  const auto tick = [&](const Op& op) {
    return (op.micro.value - plan.schedule.micro_count) / abreast + op.stage.value;
  };
  for (auto& list : made.lists) {
    std::stable_sort(list.begin(), list.end(), [&](const Op& a, const Op& b) {
      return std::pair(tick(a), -a.stage.value) < std::pair(tick(b), -b.stage.value);
    });
  }
  insert_messages(made);
  return made;
}

// Gives each micro-batch of a stage to one of these holders; owners that hold it keep theirs.
void deal(std::vector<WorkerId>& owners, const std::vector<WorkerId>& holders) {
  std::vector<int32_t> places;  // of each micro-batch's owner among the holders
  for (const WorkerId owner : owners) {
    const auto place = std::find(holders.begin(), holders.end(), owner);
    places.push_back(place == holders.end() ? -1 : static_cast<int32_t>(place - holders.begin()));
  }
  share_out(places, static_cast<int32_t>(holders.size()));
  for (size_t m = 0; m < owners.size(); ++m) owners[m] = holders[at(places[m])];
}

}  // namespace

std::vector<Op> merge(std::vector<Placed> placed) {
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.index, a.op.micro) < std::pair(b.index, b.op.micro);
  });
  std::map<std::pair<OpKind, StageId>, std::vector<MicroId>> micros;
  for (const Placed& each : placed) {
    micros[{each.op.kind, each.op.stage}].push_back(each.op.micro);
  }
  for (auto& [kind, ascending] : micros) std::sort(ascending.rbegin(), ascending.rend());
  std::vector<Op> list;
  for (Placed& each : placed) {
    auto& rest = micros[{each.op.kind, each.op.stage}];
    each.op.micro = rest.back();
    rest.pop_back();
    list.push_back(each.op);
  }
  return list;
}

Plan with_work(const Plan& plan, Work work) {
  CHECK(work.lists.size() == plan.schedule.lists.size(), "a list for each worker");
  CHECK(work.holders.size() == plan.stages.size(), "holders for each stage");
  Plan made;
  made.order = plan.order;
  made.dispatch = Dispatch::Ready;
  made.split_backward = plan.split_backward;
  made.limits = plan.limits;
  made.update = plan.update;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    CHECK(!work.holders[s].empty(), "a stage without a holder");
    made.stages.push_back(plan.stages[s]);
    made.stages.back().holders = std::move(work.holders[s]);
  }
  made.schedule.stage_count = plan.schedule.stage_count;
  made.schedule.micro_count = plan.schedule.micro_count;
  made.schedule.lists = std::move(work.lists);
  made.schedule.all_reduce = plan.schedule.all_reduce;
  insert_messages(made.schedule);
  append_update(made, summings_of(plan.schedule));
  made.evaluation = make_evaluation(plan, made.stages, work.idle);
  return made;
}

Plan with_evaluation(Plan plan, int32_t micros) {
  if (plan.evaluation.micro_count == micros) return plan;
  plan.evaluation = {};
  if (micros == 0) return plan;
  plan.evaluation.stage_count = plan.schedule.stage_count;
  plan.evaluation.micro_count = micros;
  plan.evaluation.lists.resize(plan.schedule.lists.size());
  plan.evaluation = make_evaluation(plan, plan.stages, {});
  return plan;
}

std::vector<std::vector<WorkerId>> runners_of(const Plan& plan) {
  std::vector<std::vector<WorkerId>> runners(plan.stages.size());
  for (auto& of : runners) of.resize(at(plan.schedule.micro_count));
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    for (const Op& op : plan.schedule.lists[w]) {
      if (op.kind != OpKind::Forward) continue;
      runners[at(op.stage.value)][at(op.micro.value)] = {static_cast<int32_t>(w)};
    }
  }
  return runners;
}

void share_out(std::vector<int32_t>& owners, int32_t holders) {
  std::vector<int32_t> loads(at(holders), 0);
  for (const int32_t owner : owners) {
    if (owner >= 0) ++loads[at(owner)];
  }
  for (int32_t& owner : owners) {
    if (owner >= 0) continue;
    const auto least = std::min_element(loads.begin(), loads.end());
    owner = static_cast<int32_t>(least - loads.begin());
    ++*least;
  }
}

namespace {

// True when the list has several stages, one of which was not in the list before.
bool runs_more(const std::vector<Op>& now, const std::vector<Op>& before) {
  const auto stages_of = [](const std::vector<Op>& list) {
    std::set<StageId> stages;
    for (const Op& op : list) {
      if (op.kind == OpKind::Forward) stages.insert(op.stage);
    }
    return stages;
  };
  const std::set<StageId> old = stages_of(before), stages = stages_of(now);
  return stages.size() > 1 && !std::includes(old.begin(), old.end(), stages.begin(), stages.end());
}

// True when the list has an op after another op of the same micro-batch that needs its result. This
// happens when several stages of the worker took over different micro-batches.
bool runs_against_flow(const std::vector<Op>& list) {
  std::map<std::pair<OpKind, MicroId>, int32_t> latest;  // stage, in the direction of the flow
  return std::any_of(list.begin(), list.end(), [&](const Op& op) {
    const int32_t stage = op.kind == OpKind::Forward ? op.stage.value : -op.stage.value;
    const auto [it, first] = latest.try_emplace({op.kind, op.micro}, stage);
    return !first && stage < std::exchange(it->second, stage);
  });
}

// Sorts the ops of each kind by micro-batch, then by stage in the direction in which values flow,
// so that no op waits for one behind it: merged lists of single stages do not ensure that.
void order_by_flow(std::vector<Op>& list) {
  std::map<OpKind, std::vector<Op>> kinds;
  for (const Op& op : list) kinds[op.kind].push_back(op);
  for (auto& [kind, ops] : kinds) {
    const int32_t way = kind == OpKind::Forward ? 1 : -1;
    std::sort(ops.begin(), ops.end(), [&](const Op& a, const Op& b) {
      return std::pair(a.micro, way * a.stage.value) < std::pair(b.micro, way * b.stage.value);
    });
    std::reverse(ops.begin(), ops.end());
  }
  for (Op& op : list) {
    std::vector<Op>& left = kinds[op.kind];
    op = left.back();
    left.pop_back();
  }
}

// with_holders(), with the work dealt out only to the `runners` among the holders.
Plan with_runners(const Plan& plan, std::vector<std::vector<WorkerId>> holders,
                  const std::vector<std::vector<WorkerId>>& runners) {
  CHECK(holders.size() == plan.stages.size(), "holders for each stage");
  std::vector<std::vector<WorkerId>> owners = runners_of(plan);
  for (size_t s = 0; s < owners.size(); ++s) deal(owners[s], runners[s]);
  std::vector<std::vector<Placed>> lists(plan.schedule.lists.size());
  for (const auto& list : plan.schedule.lists) {
    size_t index = 0;
    for (const Op& op : list) {
      if (is_message(op) || !has_micro(op)) continue;
      const WorkerId owner = owners[at(op.stage.value)][at(op.micro.value)];
      lists[at(owner.value)].push_back({index++, op});
    }
  }
  Work work;
  for (size_t s = 0; s < holders.size(); ++s) {
    auto& idle = work.idle.emplace_back();
    std::copy_if(holders[s].begin(), holders[s].end(), std::back_inserter(idle),
                 [&](WorkerId holder) { return !contains(runners[s], holder); });
  }
  work.holders = std::move(holders);
  for (size_t w = 0; w < lists.size(); ++w) {
    work.lists.push_back(merge(std::move(lists[w])));
    std::vector<Op>& list = work.lists[w];
    if (runs_more(list, plan.schedule.lists[w]) || runs_against_flow(list)) order_by_flow(list);
  }
  Plan made = with_work(plan, std::move(work));
  for (Limit& limit : made.limits) limit.micros = limit.warm_up = 0;
  return made;
}

// By the ring, a group needs two rounds more for each joiner. So a group of one stage that has
// joiners sums by `direct` instead: in two rounds, in which each member adds up its own part.
void sum_joined_directly(Schedule& schedule, const std::vector<std::vector<WorkerId>>& joiners) {
  if (schedule.all_reduce == kAutoAllReduce) return;  // a later plan would keep what is chosen here
  for (Group& group : schedule.groups) {
    const bool joined = !joiners[at(group.stages.front().value)].empty();
    if (!joined || group.stages.size() > 1 || group.summing != Summing{}) continue;
    CollectiveShape shape;
    shape.members = group.members;
    auto direct = make_procedure("direct", shape);
    if (!direct.ok()) continue;
    schedule.collectives[at(group.collective.value)] = std::move(direct).value().collective;
    group.summing = {"direct", {}, 0};
  }
}

// A worker makes one sum after the other, and the gradients of a joined stage may come late, if its
// workers are slow. So with a split backward, joiners first sum the gradients of the other stages
// that they run. Without a split backward, the gradients of the joined stage are complete before
// those of the stages in front of it.
void sum_joined_last(Schedule& schedule, const std::vector<std::vector<WorkerId>>& joiners) {
  for (size_t w = 0; w < schedule.lists.size(); ++w) {
    std::vector<Op>& list = schedule.lists[w];
    const WorkerId self{static_cast<int32_t>(w)};
    const auto sums = [](const Op& op) { return op.kind == OpKind::Reduce; };
    const auto first = std::find_if(list.begin(), list.end(), sums);
    const auto end = std::find_if_not(first, list.end(), sums);
    std::stable_partition(
        first, end, [&](const Op& op) { return !contains(joiners[at(op.stage.value)], self); });
  }
}

// If no worker is left to run a stage, the workers with a copy of it run it, and leave their own
// stage to others if there are any.
void call_up_copies(std::vector<std::vector<WorkerId>>& runners, const Copies& copies) {
  for (size_t s = 0; s < runners.size(); ++s) {
    if (!runners[s].empty()) continue;
    runners[s] = copies[s];
    for (size_t other = 0; other < runners.size(); ++other) {
      if (other == s) continue;
      for (const WorkerId keeper : copies[s]) {
        if (runners[other].size() > 1) std::erase(runners[other], keeper);
      }
    }
  }
}

}  // namespace

Plan with_holders(const Plan& plan, std::vector<std::vector<WorkerId>> holders) {
  const auto runners = holders;
  return with_runners(plan, std::move(holders), runners);
}

Plan with_joiners(const Plan& plan, const std::vector<std::vector<WorkerId>>& joiners) {
  CHECK(joiners.size() == plan.stages.size(), "joiners for each stage");
  Work work;
  work.idle = copies_in(plan);
  for (const auto& list : plan.schedule.lists) {
    std::vector<Op>& kept = work.lists.emplace_back();
    std::copy_if(list.begin(), list.end(), std::back_inserter(kept),
                 [](const Op& op) { return !is_message(op) && has_micro(op); });
  }
  for (size_t s = 0; s < joiners.size(); ++s) {
    work.holders.push_back(plan.stages[s].holders);
    work.holders.back().insert(work.holders.back().end(), joiners[s].begin(), joiners[s].end());
    work.idle[s].insert(work.idle[s].end(), joiners[s].begin(), joiners[s].end());
  }
  Plan made = with_work(plan, std::move(work));
  sum_joined_directly(made.schedule, joiners);
  if (!made.split_backward) return made;
  Plan last = made;
  sum_joined_last(last.schedule, joiners);
  return check(last).ok() ? last : made;
}

Plan with_swapped(const Plan& plan, WorkerId a, WorkerId b) {
  const auto other = [&](WorkerId worker) { return worker == a ? b : worker == b ? a : worker; };
  Work work;
  for (const auto& list : plan.schedule.lists) {
    std::vector<Op>& kept = work.lists.emplace_back();
    std::copy_if(list.begin(), list.end(), std::back_inserter(kept),
                 [](const Op& op) { return !is_message(op) && has_micro(op); });
  }
  std::swap(work.lists[at(a.value)], work.lists[at(b.value)]);
  work.idle = copies_in(plan);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    auto& holders = work.holders.emplace_back(plan.stages[s].holders);
    for (auto* of : {&holders, &work.idle[s]}) {
      std::transform(of->begin(), of->end(), of->begin(), other);
    }
  }
  Plan made = with_work(plan, std::move(work));
  for (Limit& limit : made.limits) limit.micros = limit.warm_up = 0;
  return made;
}

Result<Plan> without_workers(const Plan& plan, const std::vector<bool>& alive) {
  CHECK(alive.size() == plan.schedule.lists.size(), "a flag for each worker");
  Copies copies = copies_in(plan);
  std::vector<std::vector<WorkerId>> holders, runners;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    auto& left = holders.emplace_back();
    auto& run = runners.emplace_back();
    for (const WorkerId holder : plan.stages[s].holders) {
      if (!alive[at(holder.value)]) continue;
      left.push_back(holder);
      if (!contains(copies[s], holder)) run.push_back(holder);
    }
    std::erase_if(copies[s], [&](WorkerId keeper) { return !alive[at(keeper.value)]; });
    if (left.empty()) {
      return Error{Code::Infeasible, Reach::Job,
                   cat("no live worker holds stage ", s, ": one of ", plan.stages[s].holders.size(),
                       " must be left")};
    }
  }
  call_up_copies(runners, copies);
  return with_runners(plan, std::move(holders), runners);
}

}  // namespace tenuto
