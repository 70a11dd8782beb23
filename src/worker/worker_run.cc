#include "worker/worker_run.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/contains.h"
#include "base/host.h"
#include "protocol/saved_shard.h"
#include "transport/ucx.h"
#include "worker/worker_parts.h"
#include "worker/worker_process.h"
#include "world/load.h"
#include "world/memory_need.h"

namespace tenuto {
namespace {

constexpr Duration kHeartbeat = std::chrono::milliseconds(500);
constexpr Duration kAnswerLimit = std::chrono::seconds(20);  // for the coordinator to answer
// From the end of the conversation to the end of the process, which may be in a long op then.
constexpr Duration kLeaveLimit = std::chrono::seconds(1);
constexpr Duration kCloseLimit = std::chrono::seconds(2);
constexpr int kTryAgain = 75;  // exit code
// How long a peer's host has for each answer, when it is asked whether it can be reached.
constexpr Duration kAnswerTime = std::chrono::milliseconds(300);

// The exit code that says whether another process may do better later.
int exit_code_of(const Error& error) {
  const bool later = error.code == Code::Disconnected || error.code == Code::Timeout;
  return later ? kTryAgain : 1;
}

}  // namespace

Status WorkerRun::connect_control() {
  const auto tls = read_tls(settings_.tls);
  if (!tls.ok()) return tls.error();
  const ClientSettings settings{.coordinator = settings_.coordinator,
                                .job = settings_.job,
                                .token = settings_.token,
                                .self = settings_.self,
                                .incarnation = settings_.incarnation,
                                .connect_limit = kAnswerLimit,
                                .heartbeat = kHeartbeat,
                                .silence_limit = kReturnLimit,
                                .return_limit = kReturnLimit,
                                .tls = tls.value()};
  Result<std::unique_ptr<Client>> client =
      connect_client(settings, report_, mailbox_, [](const Error& error) {
        say(error.message);
        std::this_thread::sleep_for(kLeaveLimit);
        _exit(exit_code_of(error));
      });
  if (!client.ok()) return client.error();
  client_ = std::move(client).value();
  const Duration end = monotonic_clock().now() + kAnswerLimit;
  while (!told() && monotonic_clock().now() < end) {
    wait(kIdle);
    if (!conversation().ok()) return conversation();
  }
  if (told()) return ok();
  return Error{Code::Timeout, Reach::Job,
               cat(name(), ": the coordinator at ", settings_.coordinator, " has not said a word")};
}

// Everything up to the first step. What goes wrong is reported, not returned.
Status WorkerRun::set_up() {
  if (const Status found = find_place(); !found.ok()) return found;
  const Status made = make_parts();
  if (!conversation().ok()) return conversation();
  if (!made.ok()) {
    if (told()->instruction.directive.phase != Phase::Out) fail(made.error());
    return ok();
  }
  return joiner_ ? ok() : get_ready();  // see look_for_others()
}

// Connects with all peers and loads the state. If an epoch begins meanwhile, leaves that to
// go_on(). What goes wrong is reported, not returned.
Status WorkerRun::get_ready() {
  Status done = connect_first();
  if (done.ok() && report_.version < 0) done = load();
  if (!conversation().ok()) return conversation();
  const auto now = told();
  const Directive& directive = now->instruction.directive;
  if (directive.phase == Phase::Out || directive.epoch != report_.epoch) return ok();
  if (!done.ok()) {
    fail(done.error());
    return ok();
  }
  report_.connected = true;
  tell();
  return ok();
}

// True when this worker has not begun yet and all its peers are members: a worker has died before
// the first step, another process takes its place, and all connect anew.
bool WorkerRun::begins_again(const Directive& directive) const {
  if (begun_ || joiner_ || compute_.compute == nullptr) return false;
  const std::set<WorkerId> peers = peers_of(*plan_, settings_.self);
  return std::all_of(peers.begin(), peers.end(),
                     [&](WorkerId peer) { return contains(directive.members, peer); });
}

// True when the coordinator knows this process, or begins a run that it fits into. A run that
// begins from another version or with other settings has no use for what this process holds.
bool WorkerRun::may_begin_with(const Told& now) const {
  if (is_awaited(now.instruction, settings_.self, settings_.incarnation)) return true;
  if (begun_ || joiner_ || *now.job_toml != *job_toml_ || *now.plan != *plan_) return false;
  return report_.version < 0 || report_.version == now.instruction.directive.first_step;
}

// Replaces the transport of another epoch, from which nothing is heard any more.
Status WorkerRun::renew_wire(int64_t epoch) {
  runner_.reset();
  transport_.reset();
  transfers_.start_over();
  while (mailbox_.wait(Duration{}).ok()) {
  }
  const Status wired = make_wire(epoch);
  if (!wired.ok()) return wired;
  join_parts();
  tell();
  return ok();
}

Status WorkerRun::make_parts() {
  const auto first = told();
  report_.epoch = first->instruction.directive.epoch;
  plan_ = first->plan;
  plan_serial_ = report_.plan = first->instruction.plan_serial;
  job_toml_ = first->job_toml;
  Result<Job> job = job_from_toml(*job_toml_, "the coordinator's settings");
  if (!job.ok()) return job.error();
  job_ = std::move(job).value();
  if (!joiner_) stages_ = stages_of(plan_->stages, settings_.self);
  if (stages_.empty()) return invalid("the plan gives no stage to this worker");
  const Status fits = check_memory_of(job_, *plan_, {settings_.self});
  if (!fits.ok()) return fits;
  const Status wired = make_wire(report_.epoch);
  if (!wired.ok()) return wired;
  tell();
  Result<WorkerCompute> compute = make_compute(job_, *plan_, stages_, mailbox_, device_);
  if (!compute.ok()) return compute.error();
  compute_ = std::move(compute).value();
  join_parts();
  return ok();
}

// Makes a transport for this epoch alone. The address, the connections and all messages under way
// of another epoch have ended with the transport of that epoch.
Status WorkerRun::make_wire(int64_t epoch) {
  const Hello hello{settings_.job, settings_.token, kWireVersion, settings_.self, epoch};
  Result<WorkerWire> wire = make_worker_wire(job_, hello, mailbox_, device_);
  if (!wire.ok()) return wire.error();
  transport_ = std::move(wire.value().transport);
  faulty_ = wire.value().faulty;
  staged_ = wire.value().staged;
  path_rule_ = wire.value().paths;
  connected_.clear();
  paths_.clear();
  slots_of_plan_ = 0;
  copied_ = {};
  report_.address = transport_->address().text;
  return ok();
}

void WorkerRun::join_parts() {
  if (staged_ != nullptr) staged_->use(compute_.compute->copies());
  runner_.emplace(Machine{transport_.get(), compute_.compute.get(), &mailbox_, &monotonic_clock(),
                          compute_.links.get()});
}

// Connects with those of the plan's peers, and of `more`, that it has no connection with yet. Of
// each pair the lower number connects; when its ticket ends well, both ends have agreed.
Status WorkerRun::connect_peers(const Plan& plan, const std::set<WorkerId>& more) {
  const Duration limit = from_milliseconds(job_.network.connect_seconds * 1000);
  const Duration end = monotonic_clock().now() + limit;
  std::set<WorkerId> due;
  std::set<WorkerId> peers = peers_of(plan, settings_.self);
  peers.insert(more.begin(), more.end());
  for (const WorkerId peer : peers) {
    if (settings_.self < peer && !connected_.contains(peer)) due.insert(peer);
  }
  std::map<Ticket, WorkerId> under_way;
  std::map<WorkerId, Duration> answered;  // when each peer's host answered last
  while (!due.empty() || !under_way.empty()) {
    const auto newest = told();
    const Instruction& now = newest->instruction;
    const bool abandoned =
        now.directive.epoch != report_.epoch || (report_.connected && !report_.lost_peers.empty());
    if (now.directive.phase == Phase::Out || abandoned || !conversation().ok()) {
      return Error{Code::Cancelled, Reach::Call, "told to go"};
    }
    for (size_t i = 0; i < now.directive.members.size(); ++i) {
      const WorkerId peer = now.directive.members[i];
      if (now.addresses[i].empty() || due.erase(peer) == 0) continue;
      const Ticket ticket = fresh_ticket();
      under_way.emplace(ticket, peer);
      answered[peer] = monotonic_clock().now();
      const Status begun = transport_->connect(peer, {now.addresses[i]}, ticket);
      if (!begun.ok()) return unreachable(peer, begun.error());
    }
    const Duration left = end - monotonic_clock().now();
    if (left.count() <= 0) {
      const WorkerId peer = due.empty() ? under_way.begin()->second : *due.begin();
      return unreachable(
          peer, {Code::Timeout, Reach::Link,
                 cat("no connection to worker ", peer, " (", names_of(stages_of(plan.stages, peer)),
                     ") within ", fixed(job_.network.connect_seconds, 1),
                     " s (network.connect_seconds)")});
    }
    const Result<Done> done = mailbox_.wait(std::min(left, kIdle));
    if (!done.ok()) {
      for (const auto& [ticket, peer] : under_way) {
        const Status there = look_after(peer, now, answered[peer]);
        if (!there.ok()) return unreachable(peer, there.error());
      }
      continue;
    }
    const auto ended = under_way.find(done.value().ticket);
    if (ended == under_way.end()) {
      if (report_.connected) note(done.value());
      continue;
    }
    if (!done.value().status.ok()) return unreachable(ended->second, done.value().status.error());
    connected_.insert(ended->second);
    under_way.erase(ended);
  }
  return ok();
}

// Called again and again while a connection to a peer is being made. In a run under way, a peer
// whose host has not answered since `answered` for kMendLimit is lost; an answer moves `answered`.
Status WorkerRun::look_after(WorkerId peer, const Instruction& now, Duration& answered) const {
  if (!report_.connected) return ok();
  const auto& members = now.directive.members;
  const auto at = std::find(members.begin(), members.end(), peer) - members.begin();
  const auto place = static_cast<size_t>(at);
  if (place >= now.addresses.size() || is_reachable(now.addresses[place], kAnswerTime)) {
    answered = monotonic_clock().now();
    return ok();
  }
  if (monotonic_clock().now() - answered < kMendLimit) return ok();
  return Error{
      Code::Timeout, Reach::Link,
      cat("worker ", peer, " cannot be reached: its host has answered nothing at ",
          now.addresses[place], " for ", fixed(to_milliseconds(kMendLimit) / 1000, 0), " s")};
}

// Before the run begins, a peer that cannot be reached is an error; later it is reported as lost.
Error WorkerRun::unreachable(WorkerId peer, const Error& error) {
  if (!report_.connected) return error;
  say(cat(name(), ": ", error.message));
  report_.lost_peers.push_back(peer);
  tell();
  return {Code::Cancelled, Reach::Call, error.message};
}

Status WorkerRun::load() {
  const auto now = told();
  const std::vector<std::string>& shards = now->instruction.resume_shards;
  if (!shards.empty()) {
    const Status loaded = compute_.compute->load(shards, now->instruction.directive.first_step);
    if (!loaded.ok()) {
      Error error = loaded.error();
      const std::string folder = std::filesystem::path(shards.front()).parent_path().string();
      error.message = cat(folder, " cannot be loaded: ", error.message);
      return error;
    }
  }
  report_.version = compute_.compute->version();
  return ok();
}

WorkerEnd WorkerRun::run() {
  const Status gone = take_part();
  const auto last = client_ ? told() : nullptr;
  if (last && last->instruction.directive.phase == Phase::Out) {
    const Instruction& end = last->instruction;
    if (end.exit_code == 0) return {};
    const std::string sentence = cat(name(), ": the run has ended: ", end.ending);
    const bool later = end.exit_code == kTryAgain || end.exit_code > 128;  // 128+n: was stopped
    return {later ? kTryAgain : 1, sentence};
  }
  if (gone.ok()) return {};
  const bool again = left_out_ || !fit_.ok();
  return {again ? kTryAgain : exit_code_of(gone.error()), gone.error().message, left_out_};
}

// The error that says why the run goes on without this process.
Error WorkerRun::left_out() {
  if (!report_.failure.empty()) return {Code::Cancelled, Reach::Worker, report_.failure};
  left_out_ = true;
  const auto last = told();
  const Instruction& newest = last->instruction;
  for (size_t i = 0; i < newest.directive.members.size() && i < newest.incarnations.size(); ++i) {
    if (newest.directive.members[i] != settings_.self || newest.incarnations[i] >= 0) continue;
    return {Code::Cancelled, Reach::Worker,
            cat(name(), ": the run begins anew from version ", newest.directive.first_step,
                ", and this process is of the time before that")};
  }
  return {Code::Cancelled, Reach::Worker,
          cat(name(),
              ": the run goes on without this process, which was not heard or not reached "
              "for too long; a new one may come back to its place")};
}

Status WorkerRun::take_part() {
  const Status connected = connect_control();
  if (!connected.ok()) return connected;
  const Status ready = set_up();
  if (!ready.ok()) return ready;
  say(cat(name(), ": ", names_of(stages_), " of job ", settings_.job, ", process ", getpid()));
  const Status gone = go_on();
  if (gone.ok()) say(cat(name(), ": told to go"));
  // Peers may still wait for what is on its way.
  if (transport_) {
    const Status closed = transport_->close(kCloseLimit);
    if (!closed.ok()) say(cat(name(), ": ", closed.error().message));
  }
  return gone;
}

Status WorkerRun::go_on() {
  while (true) {
    if (!conversation().ok()) return conversation();
    const auto now = told();
    const Directive& directive = now->instruction.directive;
    if (directive.phase == Phase::Out) return ok();
    if (!fit_.ok()) return fit_;
    if (directive.epoch != report_.epoch) {
      const Status entered = enter(*now);
      if (!entered.ok()) return entered;
      continue;
    }
    const bool forgotten =
        joiner_ && !is_awaited(now->instruction, settings_.self, settings_.incarnation);
    if (forgotten) {
      return left_out();
    }
    if (joiner_ && report_.failure.empty() && !report_.connected) {
      look_for_others(*now);
    } else if (halted_ || !report_.failure.empty() || !report_.connected) {
      wait(kIdle);
    } else if (directive.phase == Phase::Frozen) {
      freeze(*now);
    } else {
      run_steps(*now);
    }
  }
}

// Enters an epoch: frozen, with a new transport, and with a report of what this worker holds.
Status WorkerRun::enter(const Told& now) {
  const Directive& directive = now.instruction.directive;
  const bool replaced = is_replaced(now.instruction, settings_.self, settings_.incarnation);
  if (replaced || !may_begin_with(now)) return left_out();
  halted_ = false;
  rest_.reset();
  report_.epoch = directive.epoch;
  report_.phase = Phase::Frozen;
  report_.failure.clear();
  report_.lost_peers.clear();
  const Joiner* invited = joiner_in(now.instruction, settings_.self, settings_.incarnation);
  if (begins_again(directive)) {
    report_.connected = false;
    const Status wired = renew_wire(directive.epoch);
    if (wired.ok()) return get_ready();
    fail(wired.error());
    return ok();
  }
  if (!report_.connected && report_.version < 0 && invited == nullptr) {  // it has nothing yet
    report_.address.clear();  // its transport is of an earlier epoch: nobody can connect to it now
    tell();
    return ok();
  }
  report_.connected = invited == nullptr;  // see look_for_others()
  entering_ = true;
  if (invited != nullptr) {
    begin_anew();
  } else if (const Status trusted = give_up_trust(); !trusted.ok()) {
    fail(trusted.error());
    return ok();
  } else {
    report_.version = compute_.compute->version();
    report_.resumes = resumes();
    report_.held = inventories_of(holding_, report_.version, *plan_,
                                  compute_.compute->outcome().losses, report_.steps);
  }
  // What the old transport may still report does not count any more, least of all lost peers.
  if (const Status wired = renew_wire(directive.epoch); !wired.ok()) fail(wired.error());
  return ok();
}

// Undoes an optimizer step whose global norm was never confirmed. A step whose clip decision came
// while the steps were abandoned counts, but the held-out pass after it was not finished.
Status WorkerRun::give_up_trust() {
  if (!is_final()) {
    pending_.reset();
    return compute_.compute->undo();
  }
  if (!pending_) return ok();
  pending_->broken_off = true;
  report_.steps.push_back(std::move(*pending_));
  pending_.reset();
  return ok();
}

// Undoes the step that this worker has taken beyond `version`, and drops all that belongs to it.
Status WorkerRun::take_back(int64_t version) {
  if (compute_.compute->version() != version + 1) return ok();
  const Status undone = compute_.compute->undo();
  if (!undone.ok()) return undone;
  std::erase_if(report_.steps, [&](const StepSummary& of) { return of.step >= version; });
  std::erase_if(report_.shards, [&](const SavedShard& of) { return of.version > version; });
  report_.version = compute_.compute->version();
  return ok();
}

// Nothing runs; at most the version that is asked for is saved.
void WorkerRun::freeze(const Told& now) {
  const int64_t version = now.instruction.save_version;
  if (is_saver(now) && compute_.compute->version() == version + 1 && version >= 0) {
    const Status undone = take_back(version);
    if (!undone.ok()) return fail(undone.error());
    tell();
  }
  if (!save_if_asked(now)) wait(kIdle);
}

std::vector<StageId> WorkerRun::saved_by_me(const Told& told) const {
  const auto& savers = told.instruction.savers;
  std::vector<StageId> mine;
  for (const StageId stage : stages_) {
    const auto at = static_cast<size_t>(stage.value);
    if (at < savers.size() && savers[at] == settings_.self) mine.push_back(stage);
  }
  return mine;
}

// True when something was saved or could not be.
bool WorkerRun::save_if_asked(const Told& now) {
  const Instruction& asked = now.instruction;
  const int64_t version = compute_.compute->version();
  if (asked.save_version != version || !is_saver(now)) return false;
  for (const SavedShard& shard : report_.shards) {
    if (shard.version == version) return false;
  }
  std::error_code failure;
  std::filesystem::create_directories(asked.save_directory, failure);
  std::vector<SavedShard> shards;
  for (const StageId stage : saved_by_me(now)) {
    const std::string file = cat("stage-", stage, ".safetensors");
    const Status saved = compute_.compute->save(stage, cat(asked.save_directory, "/", file));
    if (!saved.ok()) {
      fail(saved.error());
      return true;
    }
    Result<SavedShard> shard = describe_shard(asked.save_directory, file, version);
    if (!shard.ok()) {
      fail(shard.error());
      return true;
    }
    shard.value().stage = stage;
    shards.push_back(std::move(shard).value());
  }
  report_.shards = std::move(shards);
  report_.version = version;
  tell();
  return true;
}

void WorkerRun::fail(const Error& error) {
  say(cat(name(), ": ", error.message));
  report_.failure = cat("on host ", host_name(), ": ", error.message);
  report_.failure_code = error.code;
  tell();
}

// Waits for one message in the mailbox. News from control is read from the client, a lost peer is
// noted, and what belongs to an abandoned call is dropped.
void WorkerRun::wait(Duration limit) {
  const Result<Done> done = mailbox_.wait(limit);
  if (!done.ok()) return;
  note(done.value());
}

// Reports a peer that is lost between two steps, once.
void WorkerRun::note(const Done& heard) {
  if (transfers_.note(heard, monotonic_clock().now())) return;
  if (heard.ticket != kNoTicket || heard.peer.value < 0) return;
  const auto& lost = report_.lost_peers;
  if (contains(lost, heard.peer)) return;
  report_.lost_peers.push_back(heard.peer);
  tell();
}

void WorkerRun::tell() { client_->report(report_); }

WorkerEnd run_worker(const WorkerSettings& settings, RealDevice device) {
  return WorkerRun(settings, std::move(device)).run();
}

}  // namespace tenuto
