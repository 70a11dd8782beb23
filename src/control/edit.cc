#include "control/edit.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "control/commit.h"
#include "control/planning.h"
#include "control/query.h"

namespace tenuto {
namespace {

// After the loss of a worker, the planner is asked about moves of layers after this many steps.
constexpr int64_t kLossLasts = 8;

Member& member_in(State& state, WorkerId worker) {
  return state.members[static_cast<size_t>(worker.value)];
}

// In a new epoch all connect anew, so reports of lost peers from the epoch before mean nothing any
// more.
void forget_losses(State& state) {
  for (Member& of : state.members) {
    if (!of.stream_ended) of.suspect_since.reset();
    of.lost.clear();
  }
}

void change(State& s, const ClockAdvanced& edit) {
  s.listened_at = edit.now;
  if (edit.stall.count() == 0) return;
  for (Member& of : s.members) of.heard_at += edit.stall;
}

void change(State& s, const WorkerHeard& edit) { member_in(s, edit.worker).heard_at = edit.now; }

void change(State& s, const ReportReceived& edit) {
  Member& of = member_in(s, edit.report.worker);
  of.heard_at = edit.now;
  if (edit.progress) s.progress_at = edit.now;
  if (std::exchange(of.stream_ended, false)) of.suspect_since.reset();  // it has come back
  of.heard = true;
  of.report = edit.report;
}

void change(State& s, const ShardSaved& edit) {
  s.shards[edit.shard.version][edit.shard.stage.value] = edit.shard;
}

void change(State& s, const RepairsAnnounced& edit) {
  member_in(s, edit.worker).repairs = edit.serial;
}

void change(State& s, const LinkLost& edit) {
  member_in(s, edit.worker).lost.emplace(edit.peer, edit.now);
}

void change(State& s, const WorkerSuspected& edit) {
  Member& of = member_in(s, edit.worker);
  of.suspect_since = edit.now;
  of.suspicion = edit.why;
}

void change(State& s, const StreamLost& edit) {
  Member& of = member_in(s, edit.worker);
  of.stream_ended = true;
  of.suspicion = "lost its connection to the coordinator";
  if (!of.suspect_since) of.suspect_since = edit.now;
}

void change(State& s, const ProcessEnded& edit) {
  Member& of = member_in(s, edit.worker);
  const bool earlier = std::exchange(of.expelled, false);  // another process is awaited already
  of.exited = of.exited || !earlier;
}

void change(State& s, const CutOff& edit) { s.unheard_since = edit.since; }

void change(State& s, const HeardAgain& edit) {
  s.unheard_since.reset();
  for (Member& of : s.members) {
    if (!of.alive) continue;
    of.heard_at = std::max(of.heard_at, edit.until);
    if (of.stream_ended) of.suspect_since = edit.until;
  }
}

void change(State& s, const CheckpointAsked& edit) { s.save_request = edit.version; }

// Asks for a plan that takes into account what was not done until now. With slow links that are not
// adapted to, no plan is asked for.
void change(State& s, const TreatmentChanged& edit) {
  Planning& planning = s.planning;
  planning.treatments.set(edit.key, edit.how);
  const bool adapts = planning.treatments.slow_links == Treatment::Adapt;
  const bool observes_workers =
      edit.key == TreatmentKey::SlowWorkers && edit.how == Treatment::Observe;
  if (edit.key == TreatmentKey::SlowLinks) {
    planning.stale = adapts;
  } else if (edit.how != Treatment::Off && !observes_workers) {
    planning.stale = planning.stale || adapts;
  }
}

void change(State& s, const TraceAsked& edit) {
  // While earlier steps are still to be traced, only the end moves: then no worker, whenever it is
  // told, leaves out a step that others trace.
  if (s.trace_until <= open_step(s)) s.trace_from = edit.from;
  s.trace_until = std::max(s.trace_until, edit.until);
}

void change(State& s, const FaultAdded& edit) {
  const auto same = [&](const Fault& fault) { return concern_one_thing(fault, edit.fault); };
  std::erase_if(s.faults, [&](const Fault& fault) {
    const bool replaced = same(fault) && fault.at_step >= edit.from;
    const int64_t end = lasts(fault) ? fault.until_step : fault.at_step + 1;
    return replaced || (end >= 0 && end <= open_step(s));
  });
  for (Fault& fault : s.faults) {
    if (same(fault) && lasts(fault) && fault.until_step < 0) fault.until_step = edit.from;
  }
  if (!ends_slowness(edit.fault)) s.faults.push_back(edit.fault);
}

void change(State& s, const StopAsked& edit) {
  s.signal = edit.signal;
  s.stop_since = edit.now;
  s.stop_at = edit.version;
}

void change(State& s, const RunBegun&) {
  s.situation = Situation::Running;
  s.begun = true;
}

void change(State& s, const WorkerAwaited& edit) {
  const Member before = member_in(s, edit.worker);
  Member& of = member_in(s, edit.worker) = Member{};
  of.deaths = before.deaths + 1;
  of.least_incarnation = before.least_incarnation + 1;
  if (before.heard) {
    of.least_incarnation = std::max(of.least_incarnation, before.report.incarnation + 1);
  }
  of.expelled = !before.exited;
  s.epoch += 1;
  s.planning.present_name = s.planning.previous_name = cat(s.epoch);
  s.progress_at = edit.now;
  for (Member& other : s.members) {
    other.suspect_since.reset();
    other.lost.clear();
  }
}

void change(State& s, const MemberLost& edit) {
  Member& of = member_in(s, edit.worker);
  of.alive = false;
  of.joining = Joining::No;
}

void change(State& s, const JoinersSentBack&) {
  for (Member& of : s.members) {
    if (of.joining != Joining::Receiving) continue;
    of.alive = false;
    of.joining = Joining::Invited;
    of.place = {};
    of.suspect_since.reset();
  }
  s.transfer.reset();
}

void change(State& s, const LayersGiven& edit) {
  s.transfer = edit.transfer;
  for (Joiner& place : s.transfer->places) place.plan_serial = s.planning.serial;
}

void change(State& s, const LayersMoved&) {
  move_layers(s.stages, s.transfer->moves);
  s.moved = plan_of_moved(s);
  s.moved_at = s.committed;
  s.transfer.reset();
}

void change(State& s, const RecoveryBegun& edit) {
  LossRecovery& recovery = s.recovery;
  if (s.situation != Situation::Recovering) {
    recovery = {};
    recovery.since = edit.now;
  }
  s.situation = Situation::Recovering;
  s.epoch += 1;
  s.target = -1;
  recovery.cause += cat(recovery.cause.empty() ? "" : "; then ", edit.cause);
  recovery.dead.push_back(edit.dead);
  recovery.rest.reset();
  recovery.deadline = edit.now + s.rules.silence_limit;
  recovery.plan = edit.plan;
  // A shard of a version that is not final may come from the attempt at the step that is abandoned.
  s.shards.erase(s.shards.upper_bound(s.committed), s.shards.end());
  forget_losses(s);
  forget_worker(s.planning, edit.dead);
  s.planning.changed_at = open_step(s);
}

void change(State& s, const RecoveryPlanned& edit) { s.recovery.plan = edit.plan; }

void change(State& s, const RestFound& edit) { s.recovery.rest = edit.rest; }

void change(State& s, const EpochBegun& edit) {
  LossRecovery& recovery = s.recovery;
  s.situation = Situation::Running;
  s.target = s.committed;
  recovery.waiting = true;
  recovery.redone = edit.redone && !recovery.rest;
  for (Member& member : s.members) {  // drop reports of the attempt that is abandoned
    std::erase_if(member.report.steps,
                  [&](const StepSummary& of) { return of.step >= open_step(s); });
  }
  Planning& planning = s.planning;
  // If the planner has not answered yet, ignore its answer; ask again once every worker knows this
  // plan.
  planning.stale = !planning.answered;
  planning.answered = true;
  planning.present = planning.previous = recovery.plan;
  planning.present_name = planning.previous_name = cat(s.epoch);
  planning.serial += 1;
  // Ask about moves of layers only once the loss has lasted for this number of steps.
  if (planning.treatments.layers != Treatment::Off) planning.review_at = s.committed + kLossLasts;
  s.first_plan = planning.serial;
  planning.from = open_step(s);
}

void change(State& s, const StepsResumed&) { s.recovery.waiting = false; }

void change(State& s, const JoinerInvited& edit) {
  Member& of = member_in(s, edit.report.worker);
  const bool absent = of.absent;
  of = Member{};
  of.alive = false;
  of.absent = absent;
  of.heard = true;
  of.report = edit.report;
  of.heard_at = edit.now;
  of.joining = Joining::Invited;
}

void change(State& s, const JoinerReported& edit) {
  Member& of = member_in(s, edit.report.worker);
  of.heard_at = edit.now;
  of.report = edit.report;
}

void change(State& s, const JoinerDropped& edit) {
  Member& of = member_in(s, edit.worker);
  of.joining = Joining::No;
  of.report.connected = false;
}

void change(State& s, const JoinersPlaced& edit) {
  for (const Joiner& place : edit.places) {
    Member& of = member_in(s, place.worker);
    of.alive = true;
    of.joining = Joining::Receiving;
    of.place = place;
    of.place.plan_serial = s.planning.serial;
    of.since = kNeverNeeded;
    of.heard_at = edit.now;
  }
}

void change(State& s, const JoinerNeeded& edit) { member_in(s, edit.worker).since = edit.since; }

void change(State& s, const MemberJoined& edit) {
  Member& of = member_in(s, edit.worker);
  if (of.absent) {
    s.grown = true;
    for (Member& member : s.members) member.absent = false;
    s.moved = plan_of_moved(s);
  }
  of.joining = Joining::No;
  of.place = {};
  readmit(s.planning, s.rules, edit.worker);
  s.planning.changed_at = open_step(s);
}

void change(State& s, const StepCommitted& edit) { s.committed = edit.version; }

void change(State& s, const StepMeasured& edit) {
  s.planning.update.note(edit.clipped);
  s.planning.stale = s.planning.stale || edit.changed;
  if (edit.other) s.planning.changed_at = edit.step;
  if (edit.monitor) s.planning.monitor = edit.monitor;
  if (edit.other) {
    const MonitorState& monitor = *s.planning.monitor;
    s.planning.troubles.note(monitor.healthy, monitor.cluster, edit.step);
  }
}

void change(State& s, const CheckpointReady& edit) { s.storing = edit.version; }

void change(State& s, const CheckpointStored& edit) {
  s.storing = -1;
  if (!edit.failure.empty()) return;
  s.saved = edit.version;
  s.shards.erase(s.shards.begin(), s.shards.upper_bound(edit.version));
}

void change(State& s, const PlanAsked& edit) {
  if (edit.update) s.planning.update.note_question();
  s.planning.answered = false;
  s.planning.stale = false;
  s.planning.request += 1;
}

void change(State& s, const PlanAnswered& edit) {
  s.planning.answered = true;
  s.planning.stale = s.planning.stale || edit.stale;
  if (edit.review_at >= 0) s.planning.review_at = edit.review_at;
}

void change(State& s, const PlanKept&) { s.planning.stale = false; }

void change(State& s, const UpdateWeighed& edit) { s.planning.update.bearable = edit.bearable; }

void change(State& s, const PlanProposed& edit) {
  Planning& planning = s.planning;
  planning.previous = std::exchange(planning.present, edit.plan);
  planning.serial += 1;
  planning.previous_name = std::exchange(planning.present_name, cat(s.epoch, "-", planning.serial));
  planning.from = -1;
  planning.update.ask_at = UpdateChoice::kCalmSteps;
  planning.stale = planning.stale || edit.interim;
}

void change(State& s, const PlanInForce& edit) { s.planning.from = edit.from; }

void change(State& s, const StepAbandoned& edit) {
  s.situation = Situation::Salvaging;
  s.epoch += 1;
  s.salvage = {edit.why, -1, edit.now + s.rules.salvage_limit};
  forget_losses(s);
}

void change(State& s, const SalvageAgreed& edit) {
  s.salvage.target = edit.version;
  s.salvage.deadline = edit.deadline;
}

void change(State& s, const RunEnded& edit) {
  s.situation = Situation::Ended;
  s.ending = edit.ending;
}

void change(State& s, const InstructionTold& edit) { s.told = *edit.instruction; }

}  // namespace

void apply_edit(const Edit& edit, State& state) {
  std::visit([&](const auto& of) { change(state, of); }, edit);
}

EditList::EditList() = default;
EditList::EditList(const EditList& other) = default;
EditList::EditList(EditList&& other) noexcept = default;
EditList& EditList::operator=(const EditList& other) = default;
EditList& EditList::operator=(EditList&& other) noexcept = default;
EditList::~EditList() = default;

void EditList::add(Edit&& edit) { edits_.push_back(std::move(edit)); }

void EditList::add_first(Edit&& edit) { edits_.insert(edits_.begin(), std::move(edit)); }

void EditList::append(EditList edits) {
  edits_.insert(edits_.end(), std::make_move_iterator(edits.begin()),
                std::make_move_iterator(edits.end()));
}

void EditedState::make(Edit&& edit) {
  apply_edit(edit, state_);
  edits_.add(std::move(edit));
}

}  // namespace tenuto
