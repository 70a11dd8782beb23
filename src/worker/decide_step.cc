// What a worker does within an epoch: saves, changes its plan, and runs steps.
#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "ir/version.h"
#include "worker/worker_parts.h"
#include "worker/worker_turn.h"

namespace tenuto {

// Nothing runs; at most the version that is asked for is saved.
bool WorkerTurn::freeze() {
  const int64_t version = heard().save_version;
  if (version >= 0 && leads_back(Version{s_.device.version}, Version{version}) &&
      !saved_by_me().empty()) {
    return act(WorkerSituation::Undoing, Undo{});
  }
  save();
  return false;
}

bool WorkerTurn::run_steps() {
  if (s_.place == Membership::Waits) return take_place();
  if (s_.report.phase != Phase::Running) return begin_running();
  if (evaluates_now()) return evaluate();
  if (s_.rest) {
    if (!s_.report.lost_peers.empty() || !connect_to(s_.rest->told->plan, {})) return false;
    // Before the rest of a step, no state is transferred.
    return take_plan() && begin_step(false);
  }
  if (must_be_final()) return finalize();
  if (s_.device.is_final()) {
    if (save()) return false;
    if (s_.report.version < s_.device.version) {
      s_.report.version = s_.device.version;
      tell();
    }
  }
  const bool there = directive().stop_at >= 0 && s_.device.version >= directive().stop_at;
  if (there || !s_.report.lost_peers.empty() || !take_plan()) return false;
  s_.deadline = now_ + from_milliseconds(s_.job->network.silence_seconds * 1000);
  return act(WorkerSituation::Transferring, TransferState{});
}

// An epoch begins at the committed version. A step beyond it is undone before this worker reports
// that it runs, or the coordinator would take it for a step of this epoch. If only the rest of that
// step is to be run, it is not undone; but this worker reports that it has done the step only when
// its rest is done. The same holds for a version that is to be evaluated and its held-out pass.
bool WorkerTurn::begin_running() {
  s_.rest = rest_of(*s_.told);
  if (!s_.job->evaluate.empty()) {
    drop_beyond(directive().committed);
    s_.report.version = std::min(s_.device.version, directive().committed);
  } else if (s_.rest) {
    drop_beyond(s_.rest->told->step);
    s_.report.version = s_.rest->told->step;
  } else if (leads_back(Version{s_.device.version}, Version{directive().committed})) {
    return act(WorkerSituation::Undoing, Undo{});
  }
  s_.report.held.clear();
  s_.begun = true;
  s_.report.phase = Phase::Running;
  tell();
  return true;
}

// The stages that this worker is to save.
std::vector<StageId> WorkerTurn::saved_by_me() const {
  std::vector<StageId> mine;
  for (const StageId stage : s_.stages) {
    const auto at = static_cast<size_t>(stage.value);
    if (at < heard().savers.size() && heard().savers[at] == s_.rules.self) mine.push_back(stage);
  }
  return mine;
}

// True when it has begun to save what it is asked for.
bool WorkerTurn::save() {
  const int64_t version = s_.device.version;
  std::vector<StageId> mine = saved_by_me();
  if (heard().save_version != version || mine.empty()) return false;
  if (s_.copied == version || s_.writing == version) return false;
  for (const SavedShard& shard : s_.report.shards) {
    if (shard.version == version) return false;
  }
  drop_copy();  // of an earlier version, whose commit was never heard of
  act(WorkerSituation::Saving,
      Save{version, std::move(mine), heard().save_directory, may_copy(version)});
  return true;
}

// Whether a checkpoint of the version may be written in the background, after the version is
// reported. That of the last version of a run may not: the run ends when it is on disk.
bool WorkerTurn::may_copy(int64_t version) const {
  const bool last = directive().stop_at >= 0 && version >= directive().stop_at;
  return s_.job->checkpoint_asynchronous && directive().phase == Phase::Running && !last;
}

// Has the copy written once its version is committed. Before that, the step that made the version
// may be done again, perhaps with other bits, and two files of one version would be mixed.
void WorkerTurn::write_committed() {
  if (s_.copied < 0 || directive().committed < s_.copied) return;
  s_.writing = std::exchange(s_.copied, -1);
  actions_.push_back(WriteCopy{});
}

void WorkerTurn::drop_copy() {
  if (s_.copied < 0) return;
  s_.copied = -1;
  actions_.push_back(DropCopy{});
}

// Reports the shards of a version. Without copies, the coordinator has all earlier ones when this
// version is due. With copies, a later report may have taken the place of the one that told of the
// version before, so the shards of that version stay.
void WorkerTurn::add_shards(const std::vector<SavedShard>& shards) {
  std::vector<SavedShard>& told = s_.report.shards;
  int64_t newest = -1;
  for (const SavedShard& shard : told) newest = std::max(newest, shard.version);
  const bool keeps = s_.job->checkpoint_asynchronous;
  std::erase_if(told, [&](const SavedShard& of) { return !keeps || of.version < newest; });
  told.insert(told.end(), shards.begin(), shards.end());
}

bool WorkerTurn::on(const CopyWritten& done) {
  if (s_.writing == done.version) s_.writing = -1;
  if (done.status.ok()) {
    add_shards(done.shards);
    tell();
  } else if (done.status.error().code != Code::Cancelled) {
    fail(done.status.error());
  }
  return is_listening() && s_.situation != WorkerSituation::Transferring;
}

bool WorkerTurn::on(const Saved& done) {
  if (!done.status.ok()) {
    fail(done.status.error());
    return true;
  }
  if (done.copied) {
    s_.copied = s_.device.version;
    write_committed();
  } else {
    add_shards(done.shards);
  }
  s_.report.version = s_.device.version;
  tell();
  return true;
}

// Begins to connect to the plan's peers, and to `more`, where no connection exists yet. False while
// it waits for them, or when one cannot be reached.
bool WorkerTurn::connect_to(const Plan& plan, const std::set<WorkerId>& more) {
  std::set<WorkerId> missing = peers_of(plan, s_.rules.self);
  missing.insert(more.begin(), more.end());
  std::erase_if(
      missing, [&](WorkerId peer) { return peer <= s_.rules.self || s_.connected.contains(peer); });
  if (missing.empty()) return true;
  const double limit = s_.job->network.connect_seconds;
  s_.deadline = deadline_before_ ? deadline_before_ : now_ + from_milliseconds(limit * 1000);
  s_.situation = WorkerSituation::Connecting;
  for (size_t i = 0; i < directive().members.size(); ++i) {
    const WorkerId peer = directive().members[i];
    const std::string& address = heard().addresses[i];
    if (address.empty() || !missing.contains(peer) || s_.calling.contains(peer)) continue;
    s_.calling.emplace(peer, now_);
    actions_.push_back(Connect{peer, address});
  }
  if (now_ < *s_.deadline) return false;
  const WorkerId peer = *missing.begin();
  s_.deadline.reset();
  s_.situation = WorkerSituation::Ready;
  unreachable(peer,
              {Code::Timeout, Reach::Link,
               cat("no connection to worker ", peer, " (", names_of(stages_of(plan.stages, peer)),
                   ") within ", fixed(limit, 1), " s (network.connect_seconds)")});
  return false;
}

// Acknowledges a new plan once its peers can be reached; false until then.
bool WorkerTurn::acknowledge_plan() {
  if (heard().plan_serial == s_.report.plan) return true;
  // Also connect donor and joiner: in a ring of many members they may exchange no other messages.
  if (!connect_to(*s_.told->plan, transfer_peers(heard(), s_.rules.self))) return false;
  s_.report.plan = heard().plan_serial;
  // Under this plan this worker will receive layers; so far it has received nothing of them.
  const Joiner* own = invitation();
  if (own != nullptr && own->plan_serial == heard().plan_serial) s_.report.received = -1;
  tell();
  return true;
}

// Changes to a new plan at the step from which it is in force. False when the step must not begin.
bool WorkerTurn::take_plan() {
  if (!acknowledge_plan()) return false;
  const bool due = heard().plan_from >= 0 && s_.device.version >= heard().plan_from;
  if (due && heard().plan_serial != s_.plan_serial) {
    s_.plan = s_.told->plan;
    s_.plan_serial = heard().plan_serial;
    return take_stages();
  }
  return true;
}

// Makes the device hold the stages that the plan in force gives to this worker; from now on the
// worker receives the state of new ones. False if the device must change first.
bool WorkerTurn::take_stages() {
  std::vector<StageId> stages = stages_of(s_.plan->stages, s_.rules.self);
  if (stages == s_.stages || stages.empty()) return true;
  s_.gains.clear();
  for (const StageId stage : stages) {
    if (!contains(s_.stages, stage)) s_.gains.push_back(stage);
  }
  s_.receives = !s_.gains.empty();
  s_.stages = std::move(stages);
  say(cat(name(), ": holds ", names_of(s_.stages), " from step ", s_.device.version, " on"));
  return act(WorkerSituation::Holding, Hold{s_.stages});
}

bool WorkerTurn::on(const HeldStages& done) {
  if (!done.status.ok()) fail(done.status.error());
  return true;
}

// Begins the step when the parts of the state that are due before it have come. If the transfer
// fails because its peer is lost, does nothing: the loss is reported separately.
bool WorkerTurn::on(const TransferMoved& moved) {
  if (s_.situation != WorkerSituation::Transferring) return false;
  if (!moved.status.ok()) {
    s_.situation = WorkerSituation::Ready;
    const Code code = moved.status.error().code;
    if (code != Code::Cancelled && code != Code::Disconnected) fail(moved.status.error());
    return false;
  }
  if (!moved.ready) return false;
  const bool joining = s_.receives && s_.gains.empty();
  if (s_.receives && moved.received >= 0) {
    s_.report.received = moved.received;
    say(cat(name(), ": has received the whole state of ",
            joining ? std::string() : cat(names_of(s_.gains), ", "), "version ", moved.received));
    s_.receives = false;
    s_.gains.clear();
    tell();
  }
  return begin_step(joining);
}

// True in a run that only evaluates, until this worker has reported its part of the held-out pass.
bool WorkerTurn::evaluates_now() const {
  return !s_.job->evaluate.empty() && s_.report.version < s_.device.version;
}

// Runs the held-out pass with the parameters that were loaded. It is reported as that of the step
// that made them.
bool WorkerTurn::evaluate() {
  if (!s_.report.lost_peers.empty() || !take_plan()) return false;
  s_.running = s_.device.version;
  s_.pending = StepSummary{.step = iteration_that_made(Version{s_.running}).value};
  return act(WorkerSituation::Evaluating, Evaluate{});
}

bool WorkerTurn::begin_step(bool counts_voids) {
  s_.running = s_.rest ? s_.rest->told->step : iteration_on(Version{s_.device.version}).value;
  return act(WorkerSituation::Stepping, RunStep{s_.running, counts_voids});
}

bool WorkerTurn::on(const Validated& validated) {
  s_.device.finality = validated.finality;
  if (!halts()) conclude();
  return false;
}

bool WorkerTurn::on(const StepEnded& ended) {
  note_repairs(ended.repairs);
  if (!ended_well(ended.status)) return true;
  s_.situation = WorkerSituation::Ready;
  s_.rest.reset();
  s_.fresh = false;
  s_.pending = ended.summary;
  return after_step();
}

bool WorkerTurn::finalize() {
  s_.running = s_.device.version;
  return act(WorkerSituation::Finalizing, Finalize{});
}

bool WorkerTurn::on(const Finalized& done) {
  s_.situation = WorkerSituation::Ready;
  return ended_well(done.status) ? after_step() : true;
}

// Once the version of the step is final, runs the held-out pass if one is due, and reports the
// step. If it is not final yet: makes it final now if a held-out pass is due; otherwise waits until
// the next step has made it final.
bool WorkerTurn::after_step() {
  if (!s_.pending) return true;
  const int64_t version = version_made_by(Iteration{s_.pending->step}).value;
  const bool evaluates = !s_.plan->evaluation.lists.empty() && s_.job->validates_after(version);
  if (!s_.device.is_final()) return evaluates ? finalize() : true;
  if (halts()) return true;
  if (!evaluates) return conclude();
  s_.running = version;
  return act(WorkerSituation::Evaluating, Evaluate{});
}

bool WorkerTurn::on(const Evaluated& done) {
  s_.situation = WorkerSituation::Ready;
  if (ended_well(done.status)) {
    s_.pending->evaluation = done.losses;
    return conclude();
  }
  s_.pending->broken_off = true;
  s_.report.steps.push_back(std::move(*s_.pending));
  s_.pending.reset();
  return true;
}

// True when the version that the device holds has to be made final before anything else is done: it
// is not final yet, and it is to be saved or is the version to stop at, or the next step runs by
// another plan.
bool WorkerTurn::must_be_final() const {
  if (s_.device.is_final()) return false;
  const int64_t version = s_.device.version;
  const bool stops = directive().stop_at >= 0 && version >= directive().stop_at;
  const bool changes = heard().plan_serial != s_.plan_serial && heard().plan_from >= 0 &&
                       version >= heard().plan_from;
  return stops || changes || heard().save_version == version;
}

// Called when the version of the step in `pending` is final: puts the clip decision into its
// summary. If a number is not finite, reports that and returns true; the coordinator then decides
// what becomes of the run.
bool WorkerTurn::halts() {
  if (!s_.pending) return false;
  const Finality& now = s_.device.finality;
  s_.pending->gradient_norm = now.gradient_norm;
  s_.pending->finite = now.finite;
  s_.pending->clipped = now.clipped;
  if (now.again && now.finite) {
    say(cat(name(), ": step ", now.version, " is run again: the gradients of step ",
            iteration_that_made(Version{now.version}).value, " had to be clipped, their norm is ",
            now.gradient_norm));
  }
  if (is_finite(*s_.pending)) return false;
  s_.halted = true;
  s_.report.steps.push_back(std::move(*s_.pending));
  s_.pending.reset();
  tell();
  return true;
}

// Reports the step in `pending`, whose version is final now. A worker that is to save this version
// reports the version only when it has saved or copied it; but in the middle of a step it can do
// neither, and reports the version at once.
bool WorkerTurn::conclude() {
  if (!s_.pending) return true;
  const int64_t seen = directive().committed;
  const int64_t version = version_made_by(Iteration{s_.pending->step}).value;
  const int64_t open = iteration_on(Version{seen}).value;
  std::erase_if(s_.report.steps, [&](const StepSummary& of) { return of.step < open; });
  if (!s_.job->checkpoint_asynchronous) {  // otherwise see add_shards()
    std::erase_if(s_.report.shards, [&](const SavedShard& of) { return of.version < seen; });
  }
  s_.report.seen = seen;
  s_.report.steps.push_back(std::move(*s_.pending));
  s_.pending.reset();
  const bool between = s_.situation == WorkerSituation::Ready && s_.device.version == version;
  if (between && heard().save_version == version && !saved_by_me().empty()) return true;
  s_.report.version = version;
  tell();
  return true;
}

}  // namespace tenuto
