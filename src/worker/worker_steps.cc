// The steps of a worker's process: injected faults, paths, the step itself and its summary.
#include <algorithm>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "ir/version.h"
#include "protocol/event_text.h"
#include "rehearsal/message_sizes.h"
#include "worker/worker_parts.h"
#include "worker/worker_process.h"
#include "world/sample.h"

namespace tenuto {
namespace {

// A paced device's lag is summarized every so many steps.
constexpr int64_t kLagInterval = 10;

// Suspends this process for `limit`. SIGCONT is sent repeatedly: it has no effect if it comes
// before the SIGSTOP.
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

// The peers that this worker exchanges messages with now: by the plan in force, and by what is left
// of a step.
std::set<WorkerId> WorkerProcess::peers_at_hand() const {
  std::set<WorkerId> peers = peers_of(*state_.plan, self());
  peers.merge(peers_of(plan_at_hand(state_), self()));
  return peers;
}

// Applies the faults of the step, those of the job and those requested of the live run. Links are
// changed for outgoing messages on the virtual clock, for incoming ones on the real clock. The
// held-out pass after a step has them too.
void WorkerProcess::apply_faults(int64_t step, const std::vector<Fault>& wanted) {
  break_connections(step);
  const bool had_some = !faults_.empty();
  faults_ = job().faults;
  faults_.insert(faults_.end(), wanted.begin(), wanted.end());
  double speed = speed_at(faults_, step, self(), job().seats());
  if (const Cluster* devices = job().network.devices.get(); devices != nullptr) {
    speed *= devices->workers[static_cast<size_t>(self().value)].speed;
  }
  compute_.compute->set_speed(speed);
  if (faults_.empty() && !had_some) return;
  cut_off(step);
  const Cluster base = cluster_of(job());
  const LinkStates states = links_at(faults_, step, job().seats(), base);
  if (compute_.links) {
    compute_.links->set_links(states, self(), static_cast<uint64_t>(job().seed));
  }
  if (faulty_ == nullptr || compute_.links) return;
  for (const WorkerId peer : peers_at_hand()) {
    const auto found = states.find({peer, self()});
    const LinkState state =
        found == states.end() ? LinkState{base.link(peer, self()), {}} : found->second;
    faulty_->set_link(peer, {state.link.latency, state.link.bytes_per_second, state.jitter});
  }
}

// Injects partitions: each end of a link that is cut holds back the messages that come over it. If
// the step is done again, they are not injected again.
void WorkerProcess::cut_off(int64_t step) {
  if (faulty_ == nullptr || step <= cut_off_at_) return;
  cut_off_at_ = step;
  const Duration now = monotonic_clock().now();
  for (const auto& [worker, lasts] : partitions_at(faults_, step, job().seats())) {
    if (worker != self()) {
      faulty_->hold(worker, now + lasts);
      continue;
    }
    say(cat(name(), ": injected fault: cut off for ", to_milliseconds(lasts), " ms, in step ",
            step));
    client_.cut_off(lasts);
    for (const WorkerId peer : peers_at_hand()) faulty_->hold(peer, now + lasts);
  }
}

// Injects broken connections: each breaks in the middle of the step, when half of the messages to
// the peer have left.
void WorkerProcess::break_connections(int64_t step) {
  const int32_t workers = job().worker_count();
  for (const auto& [first, second] : breaks_at(job().faults, step, job().seats(), workers)) {
    if (first != self()) continue;
    const auto& list = plan_at_hand(state_).schedule.lists[static_cast<size_t>(first.value)];
    const WorkerId peer = second;
    const auto messages = std::count_if(list.begin(), list.end(), [&](const Op& op) {
      return op.kind == OpKind::Send && op.peer == peer;
    });
    const Status broken = transport_->break_connection(peer, (messages + 1) / 2);
    if (!broken.ok()) say(cat(name(), ": ", broken.error().message));
  }
}

// The function that ends or suspends this process in the step, null without such a fault; to be
// called after each op. If only the rest of the step is run, the ops that ended before the
// interruption count as well.
std::function<void(int64_t)> WorkerProcess::injected_end(int64_t step) {
  const Fault* fault = end_at(job().faults, step, self(), job().seats());
  if (fault == nullptr) return nullptr;
  const int64_t before = state_.rest && injected_.first == step ? injected_.second : 0;
  const auto end = [this, fault, step, before](int64_t ended) {
    injected_ = {step, before + ended};
    if (before + ended != fault->at_op) return;
    if (fault->for_ms > 0) return stand_still(from_milliseconds(fault->for_ms));
    std::raise(fault->kind == "kill" ? SIGKILL : SIGSTOP);
  };
  end(0);
  return end;
}

// Between two steps no message is under way, so this end may change the path of each link and the
// slots of its staging rings (runtime/path.h). The other end need not know: it receives the same
// bytes.
void WorkerProcess::choose_paths() {
  if (staged_ == nullptr) return;
  for (const WorkerId peer : peers_of(*state_.plan, self())) {
    const auto [it, fresh] = paths_.try_emplace(peer, first_path(path_rule_));
    PathState& state = it->second;
    const Path before = state.path;
    const int32_t errors = staged_->take_errors(peer);
    if (!fresh) state = next_path(path_rule_, state, {.errors = errors});
    if (state.path != before) {
      say(cat(name(), ": messages with worker ", peer,
              state.path == Path::Staged
                  ? cat(" now go through the host's memory, after ", errors, " error(s)")
                  : cat(" go directly from the device's memory again, after ",
                        path_rule_.clean_steps, " steps without an error")));
    }
    staged_->set_path(peer, state.path);
  }
  if (slots_of_plan_ == state_.plan_serial) return;
  staged_->set_slots(ring_slots(*state_.plan, self()));
  slots_of_plan_ = state_.plan_serial;
}

// Gives emulated links the message sizes that follow from the job's profile and the current plan.
void WorkerProcess::count_sizes() {
  if (job().device.layers == nullptr) return;
  MessageSizes sizes = message_sizes(job(), plan_at_hand(state_));
  if (compute_.links) compute_.links->set_sizes(sizes);
  if (faulty_ != nullptr) faulty_->set_sizes(std::move(sizes));
}

// Does what is due before the messages of a step, or of a pass that no step comes before.
void WorkerProcess::prepare_links(int64_t step) {
  apply_faults(step, state_.told->instruction.faults);
  choose_paths();
  count_sizes();
}

Standing WorkerProcess::Watch::standing(int64_t) {
  process_.hear();
  return standing_of(process_.state_);
}

void WorkerProcess::Watch::lost(WorkerId peer, const Error& error) {
  process_.decide(LostPeer{peer, process_.wire_epoch_, cat(process_.name(), ": ", error.message)});
}

void WorkerProcess::Watch::ended(int64_t count) {
  if (process_.end_in_step_) process_.end_in_step_(count);
}

void WorkerProcess::Watch::ends_soon() { process_.processor_.look_ahead(monotonic_clock().now()); }

void WorkerProcess::Watch::validated() {
  if (process_.trains_) process_.decide(Validated{process_.compute_.compute->finality()});
}

void WorkerProcess::Watch::other(const Done& done) {
  process_.transfers_.note(done, monotonic_clock().now());
}

// The input of whatever runs at `version`: a step, a held-out pass, or the ops that make it final.
StepInput WorkerProcess::input_of(int64_t version) {
  const Duration silence = from_milliseconds(job().network.silence_seconds * 1000);
  return {.plan = &plan_at_hand(state_),
          .self = self(),
          .epoch = state_.report.epoch,
          .step = version,
          .limits = {.silence = silence, .retire = silence},
          .observer = &watch_,
          .recovery = {.holding = resumes(state_) ? &holding_ : nullptr,
                       .rest = state_.rest ? &state_.rest->part : nullptr,
                       .attempt = state_.rest ? state_.rest->told->attempt : -1}};
}

void WorkerProcess::execute(const RunStep& run) {
  StepEnded ended;
  Result<StepSummary> done = run_step(run, ended.repairs);
  if (done.ok()) {
    ended.summary = std::move(done).value();
  } else {
    ended.status = done.error();
  }
  outcomes_.push_back(std::move(ended));
}

Result<StepSummary> WorkerProcess::run_step(const RunStep& run, std::vector<Repair>& repairs) {
  if (run.counts_voids) runner_->join(state_.report.epoch, transfers_.voids());
  prepare_links(run.step);
  if (compute_.paced != nullptr) compute_.paced->count_lag(!state_.fresh);
  StepSummary summary{.step = run.step, .start_ns = monotonic_clock().now().count()};
  StepInput input = input_of(run.step);
  if (input.recovery.holding == nullptr) holding_ = Holding(kKeptBytes);
  end_in_step_ = injected_end(run.step);
  // No busy host changes the times of a virtual clock.
  const bool virtual_clock = compute_.links != nullptr;
  if (!virtual_clock) processor_.begin(monotonic_clock().now());
  in_step_ = trains_ = true;
  Result<std::vector<Event>> events = runner_->run_step(input);
  in_step_ = trains_ = false;
  end_in_step_ = nullptr;
  const WireNews news = transport_->take_news();
  repairs = news.repairs;
  if (!events.ok()) return events.error();
  summary.finish_ns = monotonic_clock().now().count();
  finish_summary(std::move(events).value(), run.step, summary);
  note_network(news, summary.sample);
  if (!virtual_clock) summary.sample.processor = processor_.end(monotonic_clock().now());
  if (device_.stepped) device_.stepped(news_of(summary));
  return summary;
}

StepNews WorkerProcess::news_of(const StepSummary& summary) const {
  StepNews news{summary.step, summary.losses, {}, summary.learning_rate};
  const Version made = version_made_by(Iteration{summary.step});
  const bool known = compute_.compute->finality().version == made.value;
  if (known) news.gradient_norm = summary.gradient_norm;
  return news;
}

// Adds what the kernel knows of the links, except of emulated ones, which it does not see. Drops
// the times of messages over a connection that broke: they do not measure the link.
void WorkerProcess::note_network(const WireNews& news, StepSample& sample) const {
  const auto mended = [&](WorkerId peer) {
    return std::any_of(news.repairs.begin(), news.repairs.end(),
                       [&](const Repair& repair) { return repair.peer == peer; });
  };
  std::erase_if(sample.links, [&](const LinkSample& link) { return mended(link.from); });
  if (compute_.links) return;
  for (const LinkFigures& each : news.figures) {
    if (mended(each.peer)) continue;
    sample.network.push_back(
        {each.peer, each.round_trip, each.variation, each.bytes_per_second, each.repeated});
  }
}

void WorkerProcess::execute(const Finalize&) {
  in_step_ = true;
  const Status done = runner_->make_final(input_of(state_.running));
  in_step_ = false;
  outcomes_.push_back(Finalized{done});
}

void WorkerProcess::execute(const Evaluate&) {
  if (!job().evaluate.empty()) {  // there is no step: faults of this number are of the pass
    prepare_links(state_.running);
    end_in_step_ = injected_end(state_.running);
  }
  StepInput input = input_of(state_.running);
  input.evaluation = true;
  input.recovery.holding = nullptr;
  in_step_ = true;
  const Result<std::vector<Event>> events = runner_->run_step(input);
  in_step_ = false;
  end_in_step_ = nullptr;
  if (!events.ok()) return outcomes_.push_back(Evaluated{events.error(), {}});
  outcomes_.push_back(Evaluated{ok(), compute_.compute->outcome().losses});
}

// Injects clock skew: shifts the send times of received messages by the sender's skew minus this
// worker's.
void WorkerProcess::skew_stamps(std::vector<Event>& events, int64_t step) const {
  const Seats seats = job().seats();
  const Duration own = skew_at(faults_, step, self(), seats);
  for (Event& event : events) {
    if (event.op.kind != OpKind::Recv || event.sent == Duration::zero()) continue;
    event.sent += skew_at(faults_, step, event.op.peer, seats) - own;
  }
}

void WorkerProcess::finish_summary(std::vector<Event> events, int64_t step, StepSummary& summary) {
  if (!faults_.empty()) skew_stamps(events, step);
  const StepOutcome outcome = compute_.compute->outcome();
  summary.losses = outcome.losses;
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
  const bool look = step % kLagInterval == 0 || step + 1 == job().steps;
  if (compute_.paced != nullptr && look) {
    const Lag lag = compute_.paced->lag();
    summary.lag_p99_ns = lag.p99.count();
    summary.lag_valid = lag.valid();
  }
  const Instruction& told = state_.told->instruction;
  const bool asked = step >= told.trace_from && step < told.trace_until;
  if (asked || job().traces(step)) {
    summary.events = to_text(events);
    const auto lines = std::count(summary.events.begin(), summary.events.end(), '\n');
    if (lines < std::ssize(events)) {
      say(cat(name(), ": the trace of step ", step, " has the first ", lines, " of ", events.size(),
              " events: more do not fit into a report"));
    }
  }
}

}  // namespace tenuto
