#include "worker/decide_worker.h"

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "worker/worker_parts.h"
#include "worker/worker_turn.h"

namespace tenuto {
namespace {

// A report contains at most so many repaired connections, the newest ones.
constexpr size_t kRepairsTold = 16;
// How long a peer's host has for each answer while a connection to it is made.
constexpr Duration kAnswerTime = std::chrono::milliseconds(300);

}  // namespace

int exit_code_of(const Error& error) {
  const bool later = error.code == Code::Disconnected || error.code == Code::Timeout;
  return later ? kTryAgain : 1;
}

Leave leave_as_told(const Instruction& end, const std::string& name) {
  if (end.exit_code == 0) return {};
  const bool later = end.exit_code == kTryAgain || end.exit_code > 128;  // 128+n: was stopped
  return {later ? kTryAgain : 1, cat(name, ": the run has ended: ", end.ending)};
}

const Plan& plan_at_hand(const WorkerState& state) {
  return state.rest ? state.rest->told->plan : *state.plan;
}

bool resumes(const WorkerState& state) {
  return state.device_resumes && can_resume(*state.job, *state.plan);
}

Standing standing_of(const WorkerState& state) {
  const Directive& directive = state.told->instruction.directive;
  const bool over = directive.stop_at >= 0 && state.running >= directive.stop_at &&
                    directive.committed >= directive.stop_at;
  return {directive.committed, directive.epoch != state.report.epoch ||
                                   directive.phase != Phase::Running || over ||
                                   !state.conversation.ok()};
}

WorkerState begin_worker(const WorkerRules& rules, Duration now) {
  WorkerState state;
  state.rules = rules;
  state.deadline = now + rules.answer_limit;
  state.report.host = rules.host;
  return state;
}

WorkerDecision decide_worker(WorkerState state, const WorkerInput& input) {
  WorkerTurn turn(std::move(state), input.now);
  turn.take(input);
  return std::move(turn).decision();
}

void WorkerTurn::take(const WorkerInput& input) {
  const WorkerSituation before = s_.situation;
  if (before == WorkerSituation::Leaving) return;
  s_.device = input.device;
  const bool free = std::visit([this](const auto& what) { return on(what); }, input.what);
  if (!free) return;
  s_.situation = s_.plan ? WorkerSituation::Ready : WorkerSituation::Starting;
  const std::optional<Duration> deadline = std::exchange(s_.deadline, std::nullopt);
  const bool waits = before == WorkerSituation::Starting || before == WorkerSituation::Connecting;
  if (waits) deadline_before_ = deadline;
  while (next()) {
  }
}

// True while the worker reacts to every input; otherwise it waits for the outcome of an action.
bool WorkerTurn::is_listening() const { return s_.situation <= WorkerSituation::Transferring; }

bool WorkerTurn::in_step() const {
  return s_.situation == WorkerSituation::Stepping || s_.situation == WorkerSituation::Finalizing ||
         s_.situation == WorkerSituation::Evaluating;
}

bool WorkerTurn::on(const Heard& heard) {
  s_.told = heard.told;
  if (directive().epoch == s_.report.epoch) write_committed();
  if (s_.situation != WorkerSituation::Transferring) return is_listening();
  return directive().epoch != s_.report.epoch || directive().phase != Phase::Running;
}

bool WorkerTurn::on(const ConversationOver& over) {
  s_.conversation = over.why;
  return is_listening();
}

// While a step runs, a lost peer is reported when the step has ended; before the run begins, a peer
// that cannot be connected to is an error of its own.
bool WorkerTurn::on(const LostPeer& lost) {
  if (lost.epoch != s_.report.epoch) return false;
  if (s_.situation == WorkerSituation::Connecting && !s_.report.connected) return false;
  if (contains(s_.report.lost_peers, lost.peer)) return false;
  s_.report.lost_peers.push_back(lost.peer);
  if (in_step()) {
    if (s_.situation != WorkerSituation::Evaluating) say(lost.message);
    return false;
  }
  tell();
  return is_listening();
}

bool WorkerTurn::on(const Idle&) {
  if (s_.situation == WorkerSituation::Connecting && s_.report.connected) {
    const auto& members = directive().members;
    for (const auto& [peer, answered] : s_.calling) {
      const auto at = std::find(members.begin(), members.end(), peer) - members.begin();
      const auto place = static_cast<size_t>(at);
      if (place >= heard().addresses.size()) continue;
      actions_.push_back(Probe{peer, heard().addresses[place], kAnswerTime});
    }
  }
  if (s_.situation != WorkerSituation::Transferring) return is_listening();
  if (now_ < *s_.deadline) return false;
  fail({Code::Timeout, Reach::Worker,
        cat(name(), ": no part of the state has come within ",
            fixed(s_.job->network.silence_seconds, 1), " s (network.silence_seconds)")});
  return true;
}

bool WorkerTurn::on(const Connected& done) {
  if (done.epoch != s_.report.epoch) return false;
  s_.calling.erase(done.peer);
  if (done.status.ok()) {
    s_.connected.insert(done.peer);
  } else if (s_.situation == WorkerSituation::Connecting) {
    unreachable(done.peer, done.status.error());
  }
  return is_listening() && s_.situation != WorkerSituation::Transferring;
}

// In a run under way, a peer that this worker is connecting to is lost if its host has not answered
// for the mend limit.
bool WorkerTurn::on(const Probed& done) {
  if (s_.situation == WorkerSituation::Probing) {
    if (done.reachable) {
      s_.reached.insert(done.peer);
      return true;
    }
    s_.reached.clear();
    s_.situation = WorkerSituation::Ready;
    std::string sentence =
        cat(name(), ": waits until it can reach worker ", done.peer, " at ", done.address);
    if (s_.unreached != sentence) say(sentence);
    s_.unreached = std::move(sentence);
    return false;
  }
  const auto calls = s_.calling.find(done.peer);
  if (s_.situation != WorkerSituation::Connecting || calls == s_.calling.end()) return false;
  if (done.reachable) {
    calls->second = now_;
  } else if (now_ - calls->second >= s_.rules.mend_limit) {
    unreachable(
        done.peer,
        {Code::Timeout, Reach::Link,
         cat("worker ", done.peer, " cannot be reached: its host has not answered at ",
             done.address, " for ", fixed(to_milliseconds(s_.rules.mend_limit) / 1000, 0), " s")});
    return true;
  }
  return false;
}

// Before the run begins, a peer that cannot be reached is an error; later it is reported as lost.
void WorkerTurn::unreachable(WorkerId peer, const Error& error) {
  if (!s_.report.connected) return fail(error);
  say(cat(name(), ": ", error.message));
  s_.report.lost_peers.push_back(peer);
  tell();
}

void WorkerTurn::note_repairs(const std::vector<Repair>& repairs) {
  auto& told = s_.report.repairs;
  for (const Repair& repair : repairs) {
    say(cat(name(), ": the connection with worker ", repair.peer, " broke and was repaired after ",
            fixed(to_milliseconds(repair.took), 1), " ms, in step ", s_.running));
    const int64_t serial = told.empty() ? 1 : told.back().serial + 1;
    told.push_back({serial, repair.peer, s_.running, repair.took.count()});
  }
  if (told.size() > kRepairsTold) {
    told.erase(told.begin(), told.end() - static_cast<ptrdiff_t>(kRepairsTold));
  }
}

// Reports a failure; true when there is none. A call that could not be ended cleanly leaves memory
// in use: nothing more may run in this process.
bool WorkerTurn::ended_well(const Status& status) {
  if (status.ok()) {
    s_.report.lost_peers.clear();  // these peers had left after their last message of the step
    return true;
  }
  const Error& error = status.error();
  if (error.code != Code::Cancelled) say(error.message);
  if (error.reach == Reach::Job && error.code != Code::Invalid) s_.memory = error;
  if (!s_.report.lost_peers.empty()) {
    tell();
  } else if (error.code != Code::Cancelled) {
    fail(error);
  }
  return false;
}

bool WorkerTurn::is_awaited() const {
  return tenuto::is_awaited(heard(), s_.rules.self, s_.rules.incarnation);
}

const Joiner* WorkerTurn::invitation() const {
  return joiner_in(heard(), s_.rules.self, s_.rules.incarnation);
}

std::string WorkerTurn::name() const { return cat("worker ", s_.rules.self); }

bool WorkerTurn::act(WorkerSituation situation, WorkerAction action) {
  s_.situation = situation;
  actions_.push_back(std::move(action));
  return false;
}

void WorkerTurn::say(std::string sentence) { actions_.push_back(Say{std::move(sentence)}); }

void WorkerTurn::tell() { actions_.push_back(Tell{s_.report}); }

void WorkerTurn::fail(const Error& error) {
  say(cat(name(), ": ", error.message));
  s_.report.failure = cat("on host ", s_.rules.host, ": ", error.message);
  s_.report.failure_code = error.code;
  tell();
}

// The run goes on, or may go on later, without this process.
bool WorkerTurn::leave(const Error& error, bool later, bool left_out) {
  const int exit_code = later || left_out ? kTryAgain : exit_code_of(error);
  return act(WorkerSituation::Leaving, Leave{exit_code, error.message, left_out});
}

// The run is over.
bool WorkerTurn::leave_as_told() {
  say(cat(name(), ": the coordinator told this worker to leave"));
  return act(WorkerSituation::Leaving, tenuto::leave_as_told(heard(), name()));
}

}  // namespace tenuto
