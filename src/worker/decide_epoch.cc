// How a worker comes to a run and to each of its epochs: from the beginning or as a joiner
// (control/join.h).
#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "ir/version.h"
#include "worker/worker_parts.h"
#include "worker/worker_turn.h"

namespace tenuto {

bool WorkerTurn::next() {
  if (s_.told && directive().phase == Phase::Out) return leave_as_told();
  if (!s_.conversation.ok()) return leave(s_.conversation.error());
  if (!s_.told) {
    s_.deadline = deadline_before_;
    if (now_ < *s_.deadline) return false;
    return leave({Code::Timeout, Reach::Job,
                  cat(name(), ": the coordinator at ", s_.rules.coordinator,
                      " accepted the connection but sent no instruction")});
  }
  if (!s_.memory.ok()) return leave(s_.memory.error(), true);
  if (s_.plan == nullptr) return find_place();
  if (directive().epoch != s_.report.epoch) return enter();
  if (joins() && !is_awaited()) return leave_left_out();
  if (!s_.report.failure.empty() || !s_.has_device) return false;
  if (!s_.report.connected) return joins() ? look_for_members() : get_ready();
  if (s_.halted) return false;
  return directive().phase == Phase::Frozen ? freeze() : run_steps();
}

// Waits until there is a place for this process: its own from the beginning of the run, or the
// place of a lost worker.
bool WorkerTurn::find_place() {
  if (!is_awaited()) return false;
  s_.report.epoch = directive().epoch;
  s_.plan = s_.told->plan;
  s_.plan_serial = s_.report.plan = heard().plan_serial;
  s_.job_toml = s_.told->job_toml;
  if (const Joiner* invited = invitation(); invited != nullptr) {
    s_.place = Membership::Waits;
    s_.stages = invited->stages;
    begin_anew();
  } else {
    s_.stages = stages_of(s_.plan->stages, s_.rules.self);
  }
  return act(WorkerSituation::Preparing, Prepare{s_.stages});
}

bool WorkerTurn::on(const Prepared& done) {
  s_.job = done.job;
  if (!done.status.ok()) {
    fail(done.status.error());
    return true;
  }
  s_.report.address = done.address;
  tell();
  return act(WorkerSituation::MakingDevice, MakeDevice{});
}

bool WorkerTurn::on(const DeviceMade& done) {
  if (!done.status.ok()) {
    fail(done.status.error());
    return true;
  }
  s_.has_device = true;
  s_.device_resumes = done.resumes;
  say(cat(name(), ": ", names_of(s_.stages), " of job ", s_.rules.job, ", process ",
          s_.rules.process));
  return true;
}

// Connects with all peers and loads the state.
bool WorkerTurn::get_ready() {
  if (s_.report.address.empty()) return false;  // its transport is of an earlier epoch
  if (!connect_to(*s_.plan, {})) return false;
  if (s_.report.version < 0) {
    return act(WorkerSituation::Loading, Load{heard().resume_shards, directive().first_step});
  }
  s_.report.connected = true;
  tell();
  return true;
}

bool WorkerTurn::on(const Loaded& done) {
  if (!done.status.ok()) {
    fail(done.status.error());
  } else {
    s_.report.version = s_.device.version;
  }
  return true;
}

// A joiner first probes every member of the run, and reports that it is ready when it can reach
// them all: it may have been left out because of a link that is still cut.
bool WorkerTurn::look_for_members() {
  constexpr Duration kLook = std::chrono::milliseconds(500);
  for (size_t i = 0; i < directive().members.size() && i < heard().addresses.size(); ++i) {
    const WorkerId peer = directive().members[i];
    const std::string& address = heard().addresses[i];
    if (peer == s_.rules.self || address.empty() || s_.reached.contains(peer)) continue;
    return act(WorkerSituation::Probing, Probe{peer, address, kLook});
  }
  s_.reached.clear();
  s_.unreached.clear();
  s_.report.connected = true;
  tell();
  return true;
}

// Starts over as a joiner that has nothing of the run's state.
void WorkerTurn::begin_anew() {
  if (joins()) s_.place = Membership::Waits;
  s_.receives = false;
  s_.report.version = s_.report.received = -1;
  s_.report.steps.clear();
  s_.report.shards.clear();
  drop_copy();
  s_.report.resumes = false;
  s_.report.held.clear();
  s_.pending.reset();
}

// True when this worker has not begun yet and all its peers are members: a worker has died before
// the first step, another process takes its place, and all connect anew.
bool WorkerTurn::begins_again() const {
  if (s_.begun || joins() || !s_.has_device) return false;
  const std::set<WorkerId> peers = peers_of(*s_.plan, s_.rules.self);
  return std::all_of(peers.begin(), peers.end(),
                     [&](WorkerId peer) { return contains(directive().members, peer); });
}

// True when the coordinator knows this process, or begins a run that it fits into. A run that
// begins from another version or with other settings has no use for what this process holds.
bool WorkerTurn::may_begin() const {
  if (is_awaited()) return true;
  if (s_.begun || joins() || *s_.told->job_toml != *s_.job_toml || *s_.told->plan != *s_.plan) {
    return false;
  }
  return s_.report.version < 0 || s_.report.version == directive().first_step;
}

// Enters an epoch: undoes an optimizer step whose global norm was never confirmed; then freezes,
// renews the transport, and reports what this worker holds. If the clip decision of the newest step
// has come by now, the step counts, but the held-out pass after it is reported as not finished.
bool WorkerTurn::enter() {
  const bool replaced = is_replaced(heard(), s_.rules.self, s_.rules.incarnation);
  if (replaced || !may_begin()) return leave_left_out();
  const bool invited = invitation() != nullptr;
  if (invited) drop_copy();  // the others may have made its version again
  if (begins_again()) {
    open_epoch();
    s_.report.connected = false;
    return act(WorkerSituation::Renewing, RenewTransport{s_.report.epoch});
  }
  if (!s_.has_device || (!s_.report.connected && s_.report.version < 0 && !invited)) {
    open_epoch();
    s_.report.address.clear();  // its transport is of an earlier epoch: nobody can connect to it
    tell();
    return true;
  }
  if (!invited && !s_.gains.empty()) {  // a new epoch ends the moves of layers: drop the parts
    std::erase_if(s_.stages, [&](StageId stage) { return contains(s_.gains, stage); });
    s_.gains.clear();
    s_.receives = false;
    return act(WorkerSituation::Holding, Hold{s_.stages});
  }
  if (!invited && !s_.device.is_final()) {
    s_.pending.reset();
    return act(WorkerSituation::Undoing, Undo{});
  }
  open_epoch();
  s_.report.connected = !invited;  // see look_for_members()
  s_.fresh = true;
  if (invited) {
    begin_anew();
  } else {
    if (s_.pending) {
      s_.pending->broken_off = true;
      s_.report.steps.push_back(std::move(*s_.pending));
      s_.pending.reset();
    }
    s_.report.version = s_.device.version;
    s_.report.resumes = resumes(s_);
  }
  // From here on, what the old transport still reports does not count, least of all lost peers.
  return act(WorkerSituation::Renewing, RenewTransport{s_.report.epoch});
}

// A member hears of an epoch before any step of it has begun. So what is committed by then was made
// by the steps of the epoch before, as the copy was.
void WorkerTurn::open_epoch() {
  write_committed();
  s_.halted = false;
  s_.rest.reset();
  s_.reached.clear();
  s_.report.epoch = directive().epoch;
  s_.report.phase = Phase::Frozen;
  if (s_.has_device) s_.report.failure.clear();
  s_.report.lost_peers.clear();
}

bool WorkerTurn::on(const Renewed& done) {
  s_.connected.clear();
  s_.calling.clear();
  if (!done.status.ok()) {
    fail(done.status.error());
    return true;
  }
  s_.report.address = done.address;
  if (s_.report.connected) s_.report.held = done.held;
  tell();
  return true;
}

// A step is undone in three cases: when an epoch is entered, when this worker is frozen and is to
// save the version before, and when an epoch begins to run.
bool WorkerTurn::on(const Undone& done) {
  const bool enters = directive().epoch != s_.report.epoch;
  if (!done.status.ok()) {
    if (enters) open_epoch();
    fail(done.status.error());
    return true;
  }
  drop_beyond(s_.device.version);
  s_.report.version = s_.device.version;
  if (!enters && directive().phase == Phase::Frozen) tell();
  return true;
}

// Drops what was to be reported of steps that do not count: those that lead beyond `version`.
void WorkerTurn::drop_beyond(int64_t version) {
  std::erase_if(s_.report.steps, [&](const StepSummary& of) {
    return version_made_by(Iteration{of.step}) > Version{version};
  });
  std::erase_if(s_.report.shards, [&](const SavedShard& of) { return of.version > version; });
  if (s_.copied > version) drop_copy();
}

// A joiner acknowledges the plan that has a place for it. Its part begins with the step from which
// this plan is in force, as soon as a worker can have begun that step.
bool WorkerTurn::take_place() {
  const Joiner* own = invitation();
  if (own == nullptr || own->plan_serial < 0 || own->plan_serial > heard().plan_serial) {
    return false;
  }
  if (!s_.report.lost_peers.empty() || !acknowledge_plan()) return false;
  if (heard().plan_from < 0) return false;
  if (Iteration{heard().plan_from} >= first_unbegun(Version{directive().committed})) return false;
  s_.plan = s_.told->plan;
  s_.plan_serial = heard().plan_serial;
  return act(WorkerSituation::Adopting, Adopt{heard().plan_from});
}

bool WorkerTurn::on(const Adopted& done) {
  if (!done.status.ok()) {
    fail(done.status.error());
    return true;
  }
  s_.place = Membership::Joined;
  s_.receives = true;
  s_.report.version = s_.device.version;
  s_.report.phase = Phase::Running;
  say(cat(name(), ": joined the run at step ", s_.report.version, ", and receives the state"));
  tell();
  return true;
}

// The run goes on without this process.
bool WorkerTurn::leave_left_out() {
  if (!s_.report.failure.empty()) {
    return leave({Code::Cancelled, Reach::Worker, s_.report.failure});
  }
  const auto& members = directive().members;
  const auto at = std::find(members.begin(), members.end(), s_.rules.self) - members.begin();
  const auto place = static_cast<size_t>(at);
  const bool anew = place < heard().incarnations.size() && heard().incarnations[place] < 0;
  const std::string why =
      anew ? cat("the run restarts from version ", directive().first_step,
                 ", and this process belongs to the time before the restart")
           : "the run continues without this process, which was silent or unreachable for too "
             "long; a new process may join in its place";
  return leave({Code::Cancelled, Reach::Worker, cat(name(), ": ", why)}, true, true);
}

}  // namespace tenuto
