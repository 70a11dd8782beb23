#include "control/join.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "control/planning.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

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

// The holders of the stage that have its state.
std::vector<WorkerId> possible_donors(const State& state, StageId stage) {
  std::vector<WorkerId> holders = state.stages[static_cast<size_t>(stage.value)].holders;
  std::erase_if(holders, [&](WorkerId holder) { return !has_state(member_of(state, holder)); });
  return holders;
}

// The processes that wait for a place and are ready to take it.
std::vector<WorkerId> ready_joiners(const State& state) {
  std::vector<WorkerId> ready = all_who(state, Joining::Invited);
  std::erase_if(ready, [&](WorkerId worker) { return !is_ready(state, member_of(state, worker)); });
  return ready;
}

bool is_invited(const State& state, const Report& report) {
  const Member& of = member_of(state, report.worker);
  return of.joining == Joining::Invited && report.incarnation == of.report.incarnation;
}

}  // namespace

bool is_of_joiner(const State& state, const Report& report) {
  if (!is_worker(state, report.worker)) return false;
  const Member& of = member_of(state, report.worker);
  if (of.alive || stages_of(state.stages, report.worker).empty()) return false;
  if (is_invited(state, report)) return true;
  const bool running = state.situation == Situation::Running && state.committed < state.stop_at;
  return state.rules.survive && running && report.incarnation > of.report.incarnation;
}

DecisionPart hear_joiner(const State& state, const Report& report, Duration now) {
  DecisionPart out;
  const Member& of = member_of(state, report.worker);
  if (!is_invited(state, report)) {
    out.edits.add(JoinerInvited{report, now});
    if (of.joining != Joining::Invited) {
      out.say("join",
              cat(name_of(state.rules, report.worker), has_come(of) ? " returns" : " joins"));
    }
    return out;
  }
  if (report.sequence <= of.report.sequence) {
    out.edits.add(WorkerHeard{report.worker, now});
    return out;
  }
  out.edits.add(JoinerReported{report, now});
  if (!report.failure.empty()) out.follow(drop_joiner(state, report.worker, report.failure));
  return out;
}

DecisionPart drop_joiner(const State& state, WorkerId worker, const std::string& why) {
  DecisionPart out;
  if (member_of(state, worker).joining != Joining::Invited) return out;
  out.edits.add(JoinerDropped{worker, why});
  out.say("join", cat(name_of(state.rules, worker), " does not join: ", why));
  return out;
}

DecisionPart send_back_joiners(const State& state) {
  DecisionPart out;
  if (is_receiving(state)) out.edits.add(JoinersSentBack{});
  return out;
}

DecisionPart watch_joiners(const State& state, Duration now) {
  DecisionPart out;
  for (const WorkerId worker : all_who(state, Joining::Invited)) {
    const Duration silence = now - member_of(state, worker).heard_at;
    if (silence >= state.rules.silence_limit)
      out.follow(drop_joiner(state, worker, "it is silent"));
  }
  const Planning& planning = state.planning;
  for (const WorkerId worker : all_who(state, Joining::Receiving)) {
    const Member& of = member_of(state, worker);
    if (of.since != kNeverNeeded || of.place.plan_serial != planning.serial) continue;
    if (planning.from >= 0) out.edits.add(JoinerNeeded{worker, planning.from});
  }
  return out;
}

std::vector<WorkerId> complete_joiners(const State& state) {
  std::vector<WorkerId> receiving = all_who(state, Joining::Receiving);
  const bool all = std::all_of(receiving.begin(), receiving.end(), [&](WorkerId worker) {
    const Report& report = member_of(state, worker).report;
    return report.received >= 0 && report.received <= state.committed;
  });
  if (!all) receiving.clear();
  return receiving;
}

DecisionPart admit(const std::vector<WorkerId>& complete) {
  DecisionPart out;
  for (const WorkerId worker : complete) out.edits.add(MemberJoined{worker});
  return out;
}

DecisionPart give_work(const State& state, const std::vector<WorkerId>& joined) {
  std::shared_ptr<const Plan> plan = plan_of_all(state);
  if (is_reduced(state)) {
    Result<Plan> reduced = plan_of_the_living(state);
    // There was a plan for even fewer workers before the joiners came.
    CHECK(reduced.ok(), "a plan for those who live");
    plan = std::make_shared<const Plan>(std::move(reduced).value());
  }
  DecisionPart out = propose(state, std::move(plan),
                             cat(names_of(state, joined), " has the state of version ",
                                 member_of(state, joined.front()).report.received),
                             true);
  out.event = "join";
  return out;
}

DecisionPart give_places(const State& state, Duration now) {
  DecisionPart out;
  const std::vector<WorkerId> ready = ready_joiners(state);
  if (ready.empty()) return out;
  out.event = "join";
  JoinersPlaced placed{{}, now};
  std::vector<std::vector<WorkerId>> joiners(state.stages.size());
  std::map<WorkerId, int> transfers;
  for (const WorkerId worker : ready) {
    Joiner place{worker, member_of(state, worker).report.incarnation,
                 stages_of(state.stages, worker)};
    for (const StageId stage : place.stages) {
      place.donors.push_back(choose_donor(possible_donors(state, stage), transfers));
      joiners[static_cast<size_t>(stage.value)].push_back(worker);
    }
    placed.places.push_back(std::move(place));
  }
  // This plan has a barrier: undoing a step ahead of the norm would also undo the parts of the
  // state that the joiner has received since.
  auto plan = std::make_shared<const Plan>(
      with_joiners(with_update(*state.planning.present, false), joiners));
  if (const Status right = check(*plan); !right.ok()) {
    for (const WorkerId worker : ready) {
      out.follow(drop_joiner(state, worker, right.error().message));
    }
    return out;
  }
  // The planner may be computing a plan for fewer workers now, so another plan follows this one.
  out.follow(
      propose(state, std::move(plan), cat(names_of(state, ready), " receives the state"), true));
  out.edits.add(std::move(placed));
  return out;
}

}  // namespace tenuto
