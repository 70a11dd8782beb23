// The steps of a worker: plans, injected faults, paths, the step itself and its report.
#include <algorithm>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/contains.h"
#include "protocol/event_text.h"
#include "worker/worker_parts.h"
#include "worker/worker_process.h"
#include "world/sample.h"

namespace tenuto {
namespace {

// Steps between two looks at a paced device's lag.
constexpr int64_t kLagInterval = 10;
// A report lists at most so many repaired connections, the newest ones.
constexpr size_t kRepairsTold = 16;

// Stops this process for so long. The signal to go on repeats: one before the stop would be lost.
void stand_still(Duration limit) {
  sigevent wake{};
  wake.sigev_notify = SIGEV_SIGNAL;
  wake.sigev_signo = SIGCONT;
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &wake, &timer) != 0) return;
  const auto nanoseconds = limit.count();
  const timespec wait{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const itimerspec again{.it_interval = wait, .it_value = wait};
  timer_settime(timer, 0, &again, nullptr);
  std::raise(SIGSTOP);
  timer_delete(timer);
}

}  // namespace

void WorkerRun::run_steps(const Told& now) {
  if (joiner_ && !has_place_) {
    if (!take_place(now)) wait(kIdle);
    return;
  }
  const Directive& directive = now.instruction.directive;
  if (report_.phase != Phase::Running) begin_running(now);
  if (report_.phase != Phase::Running) return;
  if (rest_) return run_rest(now);
  if (must_be_final(now)) {
    if (settle() && !halts()) conclude();
    return;
  }
  if (is_final() && save_if_asked(now)) return;
  if (is_final() && report_.version < compute_.compute->version()) {
    report_.version = compute_.compute->version();
    tell();
  }
  const bool there = directive.stop_at >= 0 && compute_.compute->version() >= directive.stop_at;
  if (there || !report_.lost_peers.empty()) return wait(kIdle);
  if (take_plan(now)) step(now);
}

// An epoch begins at the committed version: a step beyond it is undone before this worker reports
// that it runs, so that it is not taken for a step of this epoch. If only the rest of that step is
// run, no worker counts as having done the step until its rest is done.
void WorkerRun::begin_running(const Told& now) {
  rest_ = rest_of(now);
  if (!rest_) {
    const Status back = take_back(now.instruction.directive.committed);
    if (!back.ok()) return fail(back.error());
  } else {
    const int64_t step = rest_->told->step;
    std::erase_if(report_.steps, [&](const StepSummary& of) { return of.step >= step; });
    std::erase_if(report_.shards, [&](const SavedShard& of) { return of.version > step; });
    report_.version = step;
  }
  report_.held.clear();
  begun_ = true;
  report_.phase = Phase::Running;
  tell();
}

// Finishes the step with which the epoch begins, by the lists of what is left of it.
void WorkerRun::run_rest(const Told& now) {
  if (!report_.lost_peers.empty()) return wait(kIdle);
  const Status connected = connect_peers(rest_->told->plan);
  if (!connected.ok()) {
    if (connected.error().code != Code::Cancelled) fail(connected.error());
    return;
  }
  if (take_plan(now)) step(now);
}

// Acknowledges a new plan once its peers can be reached; false when they cannot.
bool WorkerRun::acknowledge_plan(const Told& now) {
  if (now.instruction.plan_serial == report_.plan) return true;
  // Donor and joiner need not be neighbours in a ring of many members, so connect them as well.
  const Status connected =
      connect_peers(*now.plan, transfer_peers(now.instruction, settings_.self));
  if (!connected.ok()) {
    if (connected.error().code != Code::Cancelled) fail(connected.error());
    return false;
  }
  report_.plan = now.instruction.plan_serial;
  tell();
  return true;
}

// Changes to a new plan at the step from which it is in force. False when the step must not begin.
bool WorkerRun::take_plan(const Told& now) {
  if (!acknowledge_plan(now)) return false;
  const Instruction& newest = now.instruction;
  const bool due = newest.plan_from >= 0 && compute_.compute->version() >= newest.plan_from;
  if (!due || newest.plan_serial == plan_serial_) return true;
  plan_ = now.plan;
  plan_serial_ = newest.plan_serial;
  return true;
}

// The peers that this worker exchanges messages with now: by the plan in force, and by what is left
// of a step.
std::set<WorkerId> WorkerRun::peers_at_hand() const {
  std::set<WorkerId> peers = peers_of(*plan_, settings_.self);
  peers.merge(peers_of(plan_at_hand(), settings_.self));
  return peers;
}

// Applies the faults of the step, those of the job and those requested of the live run. Links are
// changed for outgoing messages on the virtual clock, for incoming ones on the real clock. The
// held-out pass after a step has them too.
void WorkerRun::apply_faults(int64_t step, const std::vector<Fault>& wanted) {
  break_connections(step);
  const bool had_some = !faults_.empty();
  faults_ = job_.faults;
  faults_.insert(faults_.end(), wanted.begin(), wanted.end());
  compute_.compute->set_speed(speed_at(faults_, step, settings_.self, job_.parallel.stages));
  if (faults_.empty() && !had_some) return;
  cut_off(step);
  const Cluster base = cluster_of(job_);
  const LinkStates states = links_at(faults_, step, job_.parallel.stages, base);
  const WorkerId self = settings_.self;
  if (compute_.links) {
    compute_.links->set_links(states, self, static_cast<uint64_t>(job_.seed));
  }
  if (faulty_ == nullptr || compute_.links) return;
  for (const WorkerId peer : peers_at_hand()) {
    const auto found = states.find({peer, self});
    const LinkState state =
        found == states.end() ? LinkState{base.link(peer, self), {}} : found->second;
    faulty_->set_link(peer, {state.link.latency, state.link.bytes_per_second, state.jitter});
  }
}

// Each end of a link that is cut holds back what comes over it. Only once: not again when the step
// is done again.
void WorkerRun::cut_off(int64_t step) {
  if (faulty_ == nullptr || step <= cut_off_at_) return;
  cut_off_at_ = step;
  const Duration now = monotonic_clock().now();
  for (const auto& [worker, lasts] : partitions_at(faults_, step, job_.parallel.stages)) {
    if (worker != settings_.self) {
      faulty_->hold(worker, now + lasts);
      continue;
    }
    say(cat(name(), ": cut off for ", to_milliseconds(lasts), " ms, in step ", step));
    client_->cut_off(lasts);
    for (const WorkerId peer : peers_at_hand()) faulty_->hold(peer, now + lasts);
  }
}

// Breaks them in the middle of the step's traffic: when half of the messages to the peer have left.
void WorkerRun::break_connections(int64_t step) {
  const int32_t workers = job_.worker_count();
  for (const auto& [first, second] : breaks_at(job_.faults, step, job_.parallel.stages, workers)) {
    if (first != settings_.self) continue;
    const auto& list = plan_at_hand().schedule.lists[static_cast<size_t>(first.value)];
    const WorkerId peer = second;
    const auto messages = std::count_if(list.begin(), list.end(), [&](const Op& op) {
      return op.kind == OpKind::Send && op.peer == peer;
    });
    const Status broken = transport_->break_connection(peer, (messages + 1) / 2);
    if (!broken.ok()) say(cat(name(), ": ", broken.error().message));
  }
}

// The function that ends or stops this process in the step, if a fault says so; to be called after
// each op. If only the rest of the step is run, the ops that ended before count as well.
std::function<void(int64_t)> WorkerRun::injected_end(int64_t step) {
  const Fault* fault = end_at(job_.faults, step, settings_.self, job_.parallel.stages);
  if (fault == nullptr) return nullptr;
  const int64_t before = rest_ && injected_.first == step ? injected_.second : 0;
  const auto end = [this, fault, step, before](int64_t ended) {
    injected_ = {step, before + ended};
    if (before + ended != fault->at_op) return;
    if (fault->for_ms > 0) return stand_still(from_milliseconds(fault->for_ms));
    std::raise(fault->kind == "kill" ? SIGKILL : SIGSTOP);
  };
  end(0);
  return end;
}

// A step that could not be ended cleanly leaves memory in use: nothing more may run here.
void WorkerRun::note_standstill(const Error& error) {
  if (error.reach == Reach::Job && error.code != Code::Invalid) fit_ = error;
}

void WorkerRun::note_repairs(const std::vector<Repair>& repairs, int64_t step) {
  auto& told = report_.repairs;
  for (const Repair& repair : repairs) {
    say(cat(name(), ": the connection with worker ", repair.peer, " broke and stood again after ",
            fixed(to_milliseconds(repair.took), 1), " ms, in step ", step));
    const int64_t serial = told.empty() ? 1 : told.back().serial + 1;
    told.push_back({serial, repair.peer, step, repair.took.count()});
  }
  if (told.size() > kRepairsTold) {
    told.erase(told.begin(), told.end() - static_cast<ptrdiff_t>(kRepairsTold));
  }
}

// Between two steps no message is under way, so each link may change its path, and the rings their
// slots. Only this end changes: the other one sees the same bytes.
void WorkerRun::choose_paths() {
  if (staged_ == nullptr) return;
  for (const WorkerId peer : peers_of(*plan_, settings_.self)) {
    const auto [it, fresh] = paths_.try_emplace(peer, first_path(path_rule_));
    PathState& state = it->second;
    const Path before = state.path;
    const int32_t errors = staged_->take_errors(peer);
    if (!fresh) state = next_path(path_rule_, state, {.errors = errors});
    if (state.path != before) {
      say(cat(name(), ": messages with worker ", peer,
              state.path == Path::Staged
                  ? cat(" go through the host's memory from here on, after ", errors, " error(s)")
                  : cat(" go from the device's memory again, after ", path_rule_.clean_steps,
                        " steps without an error")));
    }
    staged_->set_path(peer, state.path);
  }
  if (slots_of_plan_ == plan_serial_) return;
  staged_->set_slots(ring_slots(*plan_, settings_.self));
  slots_of_plan_ = plan_serial_;
}

// The input of whatever runs at `version`: a step, a held-out pass, or settle().
StepInput WorkerRun::input_of(int64_t version) {
  const int64_t epoch = report_.epoch;
  const auto standing = [this, epoch, version]() -> Standing {
    const auto newest = told();
    const Directive& directive = newest->instruction.directive;
    const bool over = directive.stop_at >= 0 && version >= directive.stop_at &&
                      directive.committed >= directive.stop_at;
    return {directive.committed, directive.epoch != epoch || directive.phase != Phase::Running ||
                                     over || !conversation().ok()};
  };
  return {.plan = &plan_at_hand(),
          .self = settings_.self,
          .epoch = epoch,
          .step = version,
          .silence_limit = from_milliseconds(job_.network.silence_seconds * 1000),
          .standing = standing,
          .lost =
              [this](WorkerId peer, const Error& error) {
                say(cat(name(), ": ", error.message));
                report_.lost_peers.push_back(peer);
              },
          .retire_limit = from_milliseconds(job_.network.silence_seconds * 1000),
          .other = [this](const Done& done) { transfers_.note(done, monotonic_clock().now()); },
          .holding = resumes() ? &holding_ : nullptr,
          .rest = rest_ ? &rest_->part : nullptr,
          .attempt = rest_ ? rest_->told->attempt : -1};
}

// Reports what follows from a failure; true when there is none.
bool WorkerRun::ended_well(const Status& status) {
  if (status.ok()) {
    report_.lost_peers.clear();  // of peers that have left early, after their last message
    return true;
  }
  if (status.error().code != Code::Cancelled) say(status.error().message);
  note_standstill(status.error());
  if (!report_.lost_peers.empty()) {
    tell();
  } else if (status.error().code != Code::Cancelled) {
    fail(status.error());
  }
  return false;
}

// True when no clip decision can change the version that is held any more.
bool WorkerRun::is_final() const {
  return compute_.compute->finality().version == compute_.compute->version();
}

// True when the version held is not final and has to be before anything else is done: it is to be
// saved or stopped at, or the next step runs by another plan.
bool WorkerRun::must_be_final(const Told& now) const {
  if (is_final()) return false;
  const Instruction& asked = now.instruction;
  const int64_t version = compute_.compute->version();
  const bool stops = asked.directive.stop_at >= 0 && version >= asked.directive.stop_at;
  const bool changes =
      asked.plan_serial != plan_serial_ && asked.plan_from >= 0 && version >= asked.plan_from;
  return stops || changes || asked.save_version == version;
}

// Makes the version held final before the next step begins; false when that failed.
bool WorkerRun::settle() {
  return ended_well(runner_->settle(input_of(compute_.compute->version())));
}

// Called when the version of the step that is not reported yet is final: puts the clip decision
// into its summary. True when a number is not finite; then control decides what becomes of the run.
bool WorkerRun::halts() {
  if (!pending_) return false;
  const Finality now = compute_.compute->finality();
  pending_->gradient_norm = now.gradient_norm;
  pending_->finite = now.finite;
  pending_->clipped = now.clipped;
  if (now.again && now.finite) {
    say(cat(name(), ": step ", now.version, " begins anew: the gradients of step ", now.version - 1,
            " were to be clipped, their norm is ", now.gradient_norm));
  }
  if (is_finite(*pending_)) return false;
  halted_ = true;
  report_.steps.push_back(std::move(*pending_));
  pending_.reset();
  tell();
  return true;
}

// Reports the step whose version is final now.
void WorkerRun::conclude() {
  if (!pending_) return;
  const int64_t seen = told()->instruction.directive.committed;
  const int64_t version = pending_->step + 1;
  std::erase_if(report_.steps, [&](const StepSummary& of) { return of.step < seen; });
  std::erase_if(report_.shards, [&](const SavedShard& of) { return of.version < seen; });
  report_.seen = seen;
  report_.steps.push_back(std::move(*pending_));
  pending_.reset();
  // A worker that is to save this version reports it once it is saved. In the middle of a step it
  // cannot save, so it reports it now.
  const bool between = compute_.compute->version() == version && !in_step_;
  if (between && told()->instruction.save_version == version && is_saver(*told())) return;
  report_.version = version;
  tell();
}

void WorkerRun::step(const Told& now) {
  // No part of a state is transferred before the rest of a step.
  if (!rest_ && !transfer_state(now)) return;
  const int64_t version = rest_ ? rest_->told->step : compute_.compute->version();
  apply_faults(version, now.instruction.faults);
  choose_paths();
  if (compute_.paced != nullptr) compute_.paced->count_lag(!entering_);
  StepSummary summary{.step = version, .start_ns = monotonic_clock().now().count()};
  StepInput input = input_of(version);
  if (input.holding == nullptr) holding_ = Holding(kKeptBytes);
  input.ended = injected_end(version);
  input.validated = [this] {
    if (!halts()) conclude();
  };
  in_step_ = true;
  Result<std::vector<Event>> events = runner_->run_step(input);
  in_step_ = false;
  const std::vector<Repair> repairs = transport_->take_repairs();
  note_repairs(repairs, version);
  if (!ended_well(events.ok() ? ok() : events.error())) return;
  rest_.reset();
  entering_ = false;
  summary.finish_ns = monotonic_clock().now().count();
  finish_summary(std::move(events).value(), version, summary);
  // How long messages took over a connection that broke says nothing of the link.
  std::erase_if(summary.sample.links, [&](const LinkSample& link) {
    return std::any_of(repairs.begin(), repairs.end(),
                       [&](const Repair& repair) { return repair.peer == link.from; });
  });
  pending_ = std::move(summary);
  const bool due = job_.validate_every > 0 && (version + 1) % job_.validate_every == 0;
  const bool evaluates = !plan_->evaluation.lists.empty() && job_.validate_micros > 0 &&
                         (due || version + 1 == job_.steps);
  if (evaluates && !is_final() && !settle()) return;
  if (!is_final() || halts()) return;
  if (evaluates && !evaluate(version + 1, *pending_)) {
    pending_->broken_off = true;
    report_.steps.push_back(std::move(*pending_));
    pending_.reset();
    return;
  }
  conclude();
}

// The held-out pass with the parameters of `version`; false when it was not finished.
bool WorkerRun::evaluate(int64_t version, StepSummary& summary) {
  StepInput input = input_of(version);
  input.evaluation = true;
  input.holding = nullptr;
  input.lost = [this](WorkerId peer, const Error&) { report_.lost_peers.push_back(peer); };
  const Result<std::vector<Event>> events = runner_->run_step(input);
  if (!ended_well(events.ok() ? ok() : events.error())) return false;
  for (const MicroLoss& of : compute_.compute->outcome().losses) {
    summary.evaluation.push_back({of.micro.value, of.loss});
  }
  return true;
}

// Shifts the senders' stamps as clocks that are ahead or behind would.
void WorkerRun::skew_stamps(std::vector<Event>& events, int64_t step) const {
  const int32_t stages = job_.parallel.stages;
  const Duration own = skew_at(faults_, step, settings_.self, stages);
  for (Event& event : events) {
    if (event.op.kind != OpKind::Recv || event.sent == Duration::zero()) continue;
    event.sent += skew_at(faults_, step, event.op.peer, stages) - own;
  }
}

void WorkerRun::finish_summary(std::vector<Event> events, int64_t step, StepSummary& summary) {
  if (!faults_.empty()) skew_stamps(events, step);
  const StepOutcome outcome = compute_.compute->outcome();
  for (const MicroLoss& of : outcome.losses) summary.losses.push_back({of.micro.value, of.loss});
  summary.gradient_norm = outcome.gradient_norm;
  summary.learning_rate = outcome.learning_rate;
  summary.finite = outcome.finite;
  for (StepSample& sample : make_samples(events)) summary.sample = std::move(sample);
  if (compute_.paced != nullptr) note_device_time(events, summary);
  if (staged_ != nullptr) {
    const StagedCounters before = std::exchange(copied_, staged_->counters());
    summary.to_host_ns = (copied_.to_host - before.to_host).count();
    summary.to_device_ns = (copied_.to_device - before.to_device).count();
    summary.staged_messages = copied_.sent - before.sent + copied_.received - before.received;
    summary.direct_messages = copied_.direct - before.direct;
  }
  const bool look = step % kLagInterval == 0 || step + 1 == job_.steps;
  if (compute_.paced != nullptr && look) {
    const Lag lag = compute_.paced->lag();
    summary.lag_p99_ns = lag.p99.count();
    summary.lag_valid = lag.valid();
  }
  const auto& traced = job_.trace_steps;
  if (contains(traced, step)) {
    summary.events = to_text(events);
    const auto told = std::count(summary.events.begin(), summary.events.end(), '\n');
    if (told < std::ssize(events)) {
      say(cat(name(), ": the trace of step ", step, " has the first ", told, " of ", events.size(),
              " events: more do not fit into a report"));
    }
  }
}

}  // namespace tenuto
