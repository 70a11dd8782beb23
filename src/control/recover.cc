#include "control/recover.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "control/replan.h"
#include "control/step_record.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

void leave_out(MonitorState& monitor, WorkerId worker) {
  const auto at = static_cast<size_t>(worker.value);
  for (Cluster* cluster : {&monitor.healthy, &monitor.cluster}) {
    if (at < cluster->workers.size()) cluster->workers[at].alive = false;
  }
}

}  // namespace

void leave_out(Planning& planning, WorkerId worker) {
  MonitorState monitor = *planning.monitor;
  leave_out(monitor, worker);
  planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
}

void forget_worker(Planning& planning, WorkerId worker) {
  MonitorState monitor = forget(*planning.monitor, worker);
  leave_out(monitor, worker);
  for (Cluster* cluster : {&monitor.healthy, &monitor.cluster}) {
    std::erase_if(cluster->exceptions, [&](const auto& link) {
      return link.first.first == worker || link.first.second == worker;
    });
  }
  planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
}

namespace {

std::string names_of(const std::vector<WorkerId>& workers) {
  std::string names = workers.size() == 1 ? "worker" : "workers";
  for (const WorkerId worker : workers)
    names += cat(worker == workers.front() ? " " : ", ", worker);
  return names;
}

}  // namespace

const std::shared_ptr<const Plan>& plan_of_all(const State& state) {
  return state.grown ? state.rules.whole : state.rules.plan;
}

Result<Plan> plan_of_the_living(const State& state) {
  if (plan_of_all(state) == nullptr) return invalid("the run has no plan");
  const Plan& all = *plan_of_all(state);
  const auto& first = all.stages.front().holders;
  const bool both = std::any_of(first.begin(), first.end(),
                                [&](WorkerId holder) { return holds(all.stages.back(), holder); });
  if (is_tied(all.schedule) && both) {
    return invalid("its first and last stage share a weight, and a worker holds both");
  }
  std::vector<bool> alive;
  for (const Member& member : state.members) alive.push_back(member.alive);
  alive.resize(all.schedule.lists.size(), false);
  Result<Plan> plan = without_workers(all, alive);
  if (!plan.ok()) return plan;
  const Status right = check(plan.value());
  if (!right.ok()) return right.error();
  return plan;
}

bool is_reduced(const State& state) {
  return std::any_of(state.members.begin(), state.members.end(),
                     [](const Member& member) { return !member.alive && !member.absent; });
}

std::string begin_recovery(Decision& out, WorkerId dead, const std::string& cause, Plan plan,
                           Duration now) {
  State& state = out.state;
  Recovery& recovery = state.recovery;
  if (state.situation != Situation::Recovering) {
    recovery = {};
    recovery.since = now;
  }
  state.situation = Situation::Recovering;
  state.epoch += 1;
  state.target = -1;
  recovery.cause += cat(recovery.cause.empty() ? "" : "; then ", cause);
  recovery.dead.push_back(dead);
  recovery.rest.reset();
  recovery.deadline = now + state.rules.silence_limit;
  recovery.plan = std::make_shared<const Plan>(std::move(plan));
  // Shards of a version that is not final may be of an attempt that is given up.
  state.shards.erase(state.shards.upper_bound(state.committed), state.shards.end());
  for (Member& member : state.members) {
    if (!member.stream_ended) member.suspect_since.reset();
    member.lost.clear();
  }
  Planning& planning = state.planning;
  forget_worker(planning, dead);
  ask_for_plan(out, recovery.plan, true);
  return cat(cause, ": the run continues without it, epoch ", state.epoch);
}

bool all_have_frozen(const State& state) {
  return std::all_of(state.members.begin(), state.members.end(), [&](const Member& member) {
    return !member.alive ||
           (member.report.epoch == state.epoch && member.report.phase == Phase::Frozen);
  });
}

bool is_step_done(const State& state, const StepRecord& step) {
  const bool all = std::all_of(
      state.members.begin(), state.members.end(),
      [&](const Member& member) { return !member.alive || member.report.version > step.step; });
  return all && is_known(step);
}

std::string begin_again(Decision& out, bool redone) {
  State& state = out.state;
  Recovery& recovery = state.recovery;
  const int64_t step = state.committed;
  state.situation = Situation::Running;
  state.target = step;
  recovery.waiting = true;
  recovery.redone = redone && !recovery.rest;
  for (Member& member : state.members) {  // drop what is of the attempt that is given up
    std::erase_if(member.report.steps, [&](const StepSummary& of) { return of.step >= step; });
  }
  Planning& planning = state.planning;
  // A better plan can be proposed once every worker knows this one.
  planning.stale = !planning.answered;
  planning.answered = true;
  planning.present = planning.previous = recovery.plan;
  planning.present_name = planning.previous_name = cat(state.epoch);
  planning.serial += 1;
  state.first_plan = planning.serial;
  planning.from = step;
  out.new_plan = true;
  const std::string agreed = cat("all live workers are at version ", step);
  if (step >= state.stop_at) return cat(agreed, ", the last");
  const char* how = recovery.rest ? " continues" : redone ? " is done again" : " begins";
  return cat(agreed, ": step ", step, how, " without ", names_of(recovery.dead), ", under plan ",
             planning.serial, " (", planning.present->order, ")");
}

std::string note_resumption(Decision& out, Duration now) {
  State& state = out.state;
  Recovery& recovery = state.recovery;
  if (!recovery.waiting) return {};
  const bool begun =
      std::any_of(state.members.begin(), state.members.end(), [&](const Member& member) {
        return member.alive && member.report.epoch == state.epoch &&
               member.report.phase == Phase::Running && member.report.plan == state.planning.serial;
      });
  if (!begun) return {};
  recovery.waiting = false;
  return cat("step ", state.target, " has begun ", recovery.redone ? "again " : "", "without ",
             names_of(recovery.dead), ", ", fixed(to_milliseconds(now - recovery.since), 1),
             " ms after the coordinator heard of the loss");
}

}  // namespace tenuto
