#include "control/join.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/text.h"
#include "control/instruct.h"
#include "control/recover.h"
#include "control/replan.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

constexpr int64_t kNotYet = std::numeric_limits<int64_t>::max();

Member& member_of(State& state, WorkerId worker) {
  return state.members[static_cast<size_t>(worker.value)];
}

// The workers whose joining is at `how`, ascending.
std::vector<WorkerId> all_who(const State& state, Joining how) {
  std::vector<WorkerId> workers;
  for (size_t w = 0; w < state.members.size(); ++w) {
    if (state.members[w].joining == how) workers.push_back({static_cast<int32_t>(w)});
  }
  return workers;
}

std::string names_of(const State& state, const std::vector<WorkerId>& workers) {
  std::string names;
  for (const WorkerId worker : workers) {
    names += cat(names.empty() ? "" : ", ", name_of(state.rules, worker));
  }
  return names;
}

bool is_ready(const State& state, const Member& member) {
  return member.report.connected && member.report.epoch == state.epoch &&
         !member.report.address.empty();
}

// The holder of the stage that is the donor of the fewest stages so far, of equals the lower
// number.
WorkerId choose_donor(const State& state, StageId stage, std::map<WorkerId, int>& transfers) {
  WorkerId chosen;
  for (const WorkerId holder : state.rules.stages[static_cast<size_t>(stage.value)].holders) {
    const Member& member = state.members[static_cast<size_t>(holder.value)];
    if (!has_state(member)) continue;
    if (chosen.value < 0 || transfers[holder] < transfers[chosen]) chosen = holder;
  }
  if (chosen.value >= 0) ++transfers[chosen];
  return chosen;
}

// Gives places to all who are ready, under a plan in which they run nothing.
std::string give_places(Decision& out, const std::vector<WorkerId>& ready, Duration now) {
  State& state = out.state;
  std::vector<std::vector<WorkerId>> joiners(state.rules.stages.size());
  std::map<WorkerId, int> transfers;
  for (const WorkerId worker : ready) {
    Member& of = member_of(state, worker);
    of.place = {worker, of.report.incarnation, stages_of(state.rules.stages, worker), {}, -1};
    for (const StageId stage : of.place.stages) {
      of.place.donors.push_back(choose_donor(state, stage, transfers));
      joiners[static_cast<size_t>(stage.value)].push_back(worker);
    }
  }
  // This plan has a barrier: a step ahead of the norm may be undone, and with it the state that was
  // given since.
  const auto plan = std::make_shared<const Plan>(
      with_joiners(with_update(*state.planning.present, false), joiners));
  if (const Status right = check(*plan); !right.ok()) {
    for (const WorkerId worker : ready) forget_joiner(out, worker, right.error().message);
    return {};
  }
  const std::string told = propose(out, plan, cat(names_of(state, ready), " receives the state"));
  for (const WorkerId worker : ready) {
    Member& of = member_of(state, worker);
    of.alive = true;
    of.joining = Joining::Receiving;
    of.place.plan_serial = state.planning.serial;
    of.since = kNotYet;
    of.heard_at = now;
  }
  // A plan that is being computed now is for fewer workers.
  state.planning.stale = true;
  return told;
}

// Puts the worker back into the cluster to plan with, as the job describes it.
void readmit(Planning& planning, const Rules& rules, WorkerId worker) {
  MonitorState monitor = *planning.monitor;
  const auto at = static_cast<size_t>(worker.value);
  for (Cluster* cluster : {&monitor.healthy, &monitor.cluster}) {
    if (at >= cluster->workers.size()) continue;
    cluster->workers[at] = rules.cluster.workers[at];
    cluster->workers[at].alive = true;
    for (const auto& [ends, link] : rules.cluster.exceptions) {
      if (ends.first != worker && ends.second != worker) continue;
      const WorkerId other = ends.first == worker ? ends.second : ends.first;
      if (cluster->workers[static_cast<size_t>(other.value)].alive)
        cluster->exceptions[ends] = link;
    }
  }
  planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
}

// A worker that was absent at the start has joined. From now on no worker counts as absent.
void grow(State& state) {
  state.grown = true;
  for (Member& member : state.members) member.absent = false;
}

// Gives work to the workers that have received the whole state.
std::string give_work(Decision& out, const std::vector<WorkerId>& complete) {
  State& state = out.state;
  Planning& planning = state.planning;
  for (const WorkerId worker : complete) {
    Member& of = member_of(state, worker);
    if (of.absent) grow(state);
    of.joining = Joining::No;
    of.place = {};
    readmit(planning, state.rules, worker);
  }
  std::shared_ptr<const Plan> plan = plan_of_all(state);
  if (is_reduced(state)) {
    Result<Plan> reduced = plan_of_the_living(state);
    // Such a plan was possible for fewer workers before.
    CHECK(reduced.ok(), "a plan for those who live");
    plan = std::make_shared<const Plan>(std::move(reduced).value());
  }
  const std::string reason = cat(names_of(state, complete), " has the state of version ",
                                 member_of(state, complete.front()).report.received);
  const std::string told = propose(out, std::move(plan), reason);
  planning.stale = true;
  return told;
}

}  // namespace

bool has_state(const Member& member) { return member.alive && member.joining == Joining::No; }

bool has_come(const Member& member) { return member.report.incarnation >= 0; }

bool is_receiving(const State& state) { return !all_who(state, Joining::Receiving).empty(); }

std::vector<Joiner> joiners_of(const State& state) {
  std::vector<Joiner> all;
  for (const WorkerId worker : all_who(state, Joining::Invited)) {
    const Member& of = state.members[static_cast<size_t>(worker.value)];
    all.push_back({worker, of.report.incarnation, stages_of(state.rules.stages, worker)});
  }
  for (const WorkerId worker : all_who(state, Joining::Receiving)) {
    all.push_back(state.members[static_cast<size_t>(worker.value)].place);
  }
  return all;
}

bool hear_joiner(Decision& out, const Report& report, Duration now) {
  State& state = out.state;
  Member& of = member_of(state, report.worker);
  if (of.alive || stages_of(state.rules.stages, report.worker).empty()) return false;
  const bool known = of.joining == Joining::Invited && report.incarnation == of.report.incarnation;
  if (known) {
    of.heard_at = now;
    if (report.sequence <= of.report.sequence) return true;
    of.report = report;
    if (!report.failure.empty()) forget_joiner(out, report.worker, report.failure);
    return true;
  }
  const bool running = state.situation == Situation::Running && state.committed < state.stop_at;
  if (!state.rules.survive || !running || report.incarnation <= of.report.incarnation) {
    return false;
  }
  const Member gone = std::exchange(of, Member{});
  of.alive = false;
  of.absent = gone.absent;
  of.heard = true;
  of.report = report;
  of.heard_at = now;
  of.joining = Joining::Invited;
  if (gone.joining != Joining::Invited) {
    out.event = "join";
    out.reason += cat(out.reason.empty() ? "" : "; ", name_of(state.rules, report.worker),
                      has_come(gone) ? " returns" : " joins");
  }
  return true;
}

void forget_joiner(Decision& out, WorkerId worker, const std::string& why) {
  Member& of = member_of(out.state, worker);
  if (of.joining != Joining::Invited) return;
  of.joining = Joining::No;
  of.report.connected = false;
  out.event = "join";
  out.reason += cat(out.reason.empty() ? "" : "; ", name_of(out.state.rules, worker),
                    " does not join: ", why);
}

void send_back_joiners(State& state) {
  for (const WorkerId worker : all_who(state, Joining::Receiving)) {
    Member& of = member_of(state, worker);
    of.alive = false;
    of.joining = Joining::Invited;
    of.place = {};
    of.suspect_since.reset();
  }
}

std::string advance_joining(Decision& out, Duration now) {
  State& state = out.state;
  if (state.situation != Situation::Running || state.committed >= state.stop_at) return {};
  for (const WorkerId worker : all_who(state, Joining::Invited)) {
    const Member& of = member_of(state, worker);
    if (now - of.heard_at >= state.rules.silence_limit) forget_joiner(out, worker, "it is silent");
  }
  const std::vector<WorkerId> receiving = all_who(state, Joining::Receiving);
  for (const WorkerId worker : receiving) {
    Member& of = member_of(state, worker);
    if (of.since == kNotYet && of.place.plan_serial == state.planning.serial) {
      if (state.planning.from >= 0) of.since = state.planning.from;
    }
  }
  if (!is_settled(state) || state.recovery.waiting) return {};
  if (!receiving.empty()) {
    const bool all = std::all_of(receiving.begin(), receiving.end(), [&](WorkerId worker) {
      const Report& report = member_of(state, worker).report;
      return report.received >= 0 && report.received <= state.committed;
    });
    if (!all) return {};
    out.event = "join";
    return give_work(out, receiving);
  }
  std::vector<WorkerId> ready = all_who(state, Joining::Invited);
  std::erase_if(ready, [&](WorkerId worker) { return !is_ready(state, member_of(state, worker)); });
  if (ready.empty()) return {};
  out.event = "join";
  return give_places(out, ready, now);
}

}  // namespace tenuto
