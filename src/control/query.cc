#include "control/query.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "control/commit.h"
#include "ir/check.h"
#include "monitor/slow_scope.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

// plan_of_all() without the workers that are not `alive`.
Result<Plan> plan_for(const State& state, std::vector<bool> alive) {
  if (plan_of_all(state) == nullptr) return invalid("the run has no plan");
  const Plan& all = *plan_of_all(state);
  const auto& first = all.stages.front().holders;
  const bool both = std::any_of(first.begin(), first.end(),
                                [&](WorkerId holder) { return holds(all.stages.back(), holder); });
  if (all.update.tied && both) {
    return invalid("its first and last stage share a weight, and a worker holds both");
  }
  alive.resize(all.schedule.lists.size(), false);
  Result<Plan> plan = without_workers(all, alive);
  if (!plan.ok()) return plan;
  const Status right = check(plan.value());
  if (!right.ok()) return right.error();
  return plan;
}

std::vector<bool> alive_in(const State& state) {
  std::vector<bool> alive;
  for (const Member& member : state.members) alive.push_back(member.alive);
  return alive;
}

}  // namespace

Seats seats_of(const Rules& rules) {
  if (!rules.places.empty()) return Seats(rules.places);
  size_t pipelines = static_cast<size_t>(std::max(0, rules.pipelines));
  for (const Stage& stage : rules.stages) {
    if (rules.pipelines == 0) pipelines = std::max(pipelines, stage.holders.size());
  }
  const auto most = static_cast<int32_t>(std::max<size_t>(1, pipelines));
  return Seats(std::max(1, rules.worker_count() / most));
}

std::string scope_of_link(const State& state, const MonitorState& monitor,
                          std::pair<WorkerId, WorkerId> link) {
  std::vector<std::string> hosts;
  for (const Member& member : state.members) hosts.push_back(host_of_worker(member.report));
  return slow_scope(link, monitor.links, link_groups(hosts, state.rules.cluster.ports),
                    seats_of(state.rules));
}

std::string name_of(const Rules& rules, WorkerId worker) {
  const std::vector<StageId> stages = stages_of(rules.stages, worker);
  if (stages.empty()) return cat("worker ", worker);
  const Seats seats = seats_of(rules);
  std::string names;
  for (const StageId stage : stages) names += cat(names.empty() ? "" : ", ", stage);
  return cat("worker ", worker, stages.size() == 1 ? " (stage " : " (stages ", names,
             " of pipeline ", seats.pipeline_of(worker), ")");
}

std::string seconds(Duration duration) { return fixed(to_milliseconds(duration) / 1000, 1); }

Facts facts_of(const State& state) {
  const bool salvaged = !state.salvage.cause.empty();
  const Planning& planning = state.planning;
  Facts facts{.run = state.rules.run,
              .term = state.rules.term,
              .epoch = state.epoch,
              .committed = state.committed,
              .target = salvaged ? state.salvage.target : state.target,
              .members = state.told.directive.members,
              .rest = state.told.rest != nullptr,
              .begun = state.begun,
              .grown = state.grown,
              .moving = state.transfer.has_value(),
              .moves = moves_between(state.rules.stages, state.stages),
              .first_plan = state.first_plan,
              .plan = planning.serial,
              .plan_from = planning.from,
              .plan_name = planning.present_name,
              .previous_plan = planning.previous_name,
              .treatments = planning.treatments,
              .ending = state.ending};
  for (const WorkerId member : facts.members) {
    const Member& of = member_of(state, member);
    facts.incarnations.push_back(of.report.incarnation);
    if (of.joining == Joining::Receiving) facts.joiners.push_back(member);
  }
  if (salvaged) facts.last_resort = state.salvage;
  return facts;
}

bool is_worker(const State& state, WorkerId worker) {
  return worker.value >= 0 && static_cast<size_t>(worker.value) < state.members.size();
}

const Member& member_of(const State& state, WorkerId worker) {
  return state.members[static_cast<size_t>(worker.value)];
}

bool has_state(const Member& member) { return member.alive && member.joining == Joining::No; }

bool has_come(const Member& member) { return member.report.incarnation >= 0; }

std::vector<WorkerId> all_who(const State& state, Joining how) {
  std::vector<WorkerId> workers;
  for (size_t w = 0; w < state.members.size(); ++w) {
    if (state.members[w].joining == how) workers.push_back({static_cast<int32_t>(w)});
  }
  return workers;
}

bool is_receiving(const State& state) {
  return state.transfer || !all_who(state, Joining::Receiving).empty();
}

bool is_reduced(const State& state) {
  return std::any_of(state.members.begin(), state.members.end(),
                     [](const Member& member) { return !member.alive && !member.absent; });
}

bool all_have_frozen(const State& state) {
  return std::all_of(state.members.begin(), state.members.end(), [&](const Member& member) {
    return !member.alive ||
           (member.report.epoch == state.epoch && member.report.phase == Phase::Frozen);
  });
}

bool has_all_shards(const State& state, int64_t version) {
  const auto found = state.shards.find(version);
  return found != state.shards.end() && found->second.size() == state.stages.size();
}

const std::shared_ptr<const Plan>& plan_of_all(const State& state) {
  if (state.moved) return state.moved;
  return state.grown ? state.rules.whole : state.rules.plan;
}

std::shared_ptr<const Plan> plan_of_moved(const State& state) {
  if (state.stages == state.rules.stages) return nullptr;
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : state.stages) {
    auto& of = holders.emplace_back(stage.holders);
    std::erase_if(of, [&](WorkerId holder) { return member_of(state, holder).absent; });
  }
  const Plan& begun = state.grown ? *state.rules.whole : *state.rules.plan;
  return std::make_shared<const Plan>(with_holders(begun, std::move(holders)));
}

Result<Plan> plan_of_the_living(const State& state) { return plan_for(state, alive_in(state)); }

Result<Plan> plan_without(const State& state, WorkerId worker) {
  std::vector<bool> alive = alive_in(state);
  alive[static_cast<size_t>(worker.value)] = false;
  return plan_for(state, std::move(alive));
}

bool concern_one_thing(const Fault& one, const Fault& other) {
  return one.kind == other.kind && one.link == other.link && one.pair == other.pair &&
         one.port == other.port && one.worker == other.worker;
}

std::shared_ptr<const Plan> plan_of(const Planning& planning, int64_t step) {
  const bool present = planning.from >= 0 && step >= planning.from;
  return present ? planning.present : planning.previous;
}

bool is_plan_adopted(const State& state) {
  const Planning& planning = state.planning;
  return planning.from >= 0 && (planning.serial == 1 || is_step_committed(state, planning.from));
}

}  // namespace tenuto
