#include "control/take_up.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "control/edit.h"
#include "control/instruct.h"
#include "control/planning.h"
#include "control/query.h"

namespace tenuto {
namespace {

// The measurements of the previous coordinator are lost. After so many steps there are enough new
// ones to review the plan that was made from the lost ones.
constexpr int64_t kMeasuredAgain = 20;

void take_up_members(State& state, const Facts& facts, Duration now) {
  state.grown = facts.grown;
  for (Member& member : state.members) {
    member.alive = false;
    if (!state.grown) continue;
    member.absent = false;
    member.report.incarnation = 0;  // a process may have had this place: the facts do not say
  }
  for (size_t i = 0; i < facts.members.size(); ++i) {
    const auto at = static_cast<size_t>(facts.members[i].value);
    CHECK(at < state.members.size(), "a member of the facts is a worker of the run");
    Member& member = state.members[at];
    member.alive = true;
    member.heard = true;  // silence counts from here
    member.heard_at = now;
    member.report.incarnation = facts.incarnations[i];
    member.report.version = facts.committed;
    if (std::find(facts.joiners.begin(), facts.joiners.end(), facts.members[i]) !=
        facts.joiners.end()) {
      member.joining = Joining::Receiving;
    }
  }
  apply_edit(JoinersSentBack{}, state);
}

void take_up_planning(State& state, const Facts& facts, const PlansOfFacts& plans) {
  Planning& planning = state.planning;
  planning.present = plans.present;
  planning.previous = plans.previous;
  planning.present_name = facts.plan_name;
  planning.previous_name = facts.previous_plan;
  planning.serial = facts.plan;
  planning.from = facts.plan_from;
  planning.treatments = facts.treatments.value_or(state.rules.treatments);
  state.first_plan = facts.first_plan;
  if (facts.plan > 1) planning.review_at = facts.committed + kMeasuredAgain;
  for (size_t worker = 0; worker < state.members.size(); ++worker) {
    const Member& member = state.members[worker];
    if (!member.alive && !member.absent) {
      forget_worker(planning, {static_cast<int32_t>(worker)});
    }
  }
}

void take_up_recovery(State& state, Duration now) {
  LossRecovery& recovery = state.recovery;
  recovery.cause = "the coordinator before this one had begun an epoch without the dead";
  recovery.since = now;
  recovery.deadline = now + state.rules.silence_limit;
  for (size_t worker = 0; worker < state.members.size(); ++worker) {
    const Member& member = state.members[worker];
    if (!member.alive && !member.absent) recovery.dead.push_back({static_cast<int32_t>(worker)});
  }
  Result<Plan> plan = plan_of_the_living(state);
  CHECK(plan.ok(), "an epoch is begun when there is a plan for it");
  recovery.plan = std::make_shared<const Plan>(std::move(plan).value());
  state.planning.answered = false;  // a better one is asked for when all run
}

}  // namespace

State take_up(const Rules& rules, const Facts& facts, const PlansOfFacts& plans, Duration now) {
  CHECK(facts.begun, "a run is taken up after it has begun");
  CHECK(rules.term > facts.term, "each coordinator has a term of its own");
  State state = begin(rules, now);
  state.begun = true;
  state.epoch = facts.epoch;
  state.committed = facts.committed;
  state.target = facts.target;
  take_up_members(state, facts, now);
  move_layers(state.stages, facts.moves);
  state.moved = plan_of_moved(state);
  take_up_planning(state, facts, plans);
  if (facts.last_resort) {
    const Duration limit = facts.target < 0 ? rules.salvage_limit : rules.save_limit();
    state.salvage = {*facts.last_resort, facts.target, now + limit};
  }
  if (facts.ending) {
    state.situation = Situation::Ended;
    state.ending = facts.ending;
  } else if (facts.last_resort) {
    state.situation = Situation::Salvaging;
  } else if (facts.target < 0 || !facts.joiners.empty() || facts.rest || facts.moving) {
    state.epoch += facts.target < 0 ? 0 : 1;
    state.target = -1;
    state.situation = Situation::Recovering;
    take_up_recovery(state, now);
  } else {
    state.situation = Situation::Running;
  }
  state.told = instruction_of(state);
  state.told.sequence = 1;
  return state;
}

State take_up_beginning(Rules rules, const Facts& facts, Duration now) {
  CHECK(!facts.begun, "a run that has begun is taken up where it is");
  rules.epoch = std::max(rules.epoch, facts.epoch);
  State state = begin(rules, now);
  state.planning.treatments = facts.treatments.value_or(rules.treatments);
  if (!facts.ending) return state;
  state.situation = Situation::Ended;
  state.ending = facts.ending;
  state.told = instruction_of(state);
  state.told.sequence = 1;
  return state;
}

}  // namespace tenuto
