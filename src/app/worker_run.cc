#include "app/worker_run.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "app/checkpoint.h"
#include "app/make_compute.h"
#include "app/trace.h"
#include "app/worker_parts.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "control/client.h"
#include "monitor/sample.h"
#include "runtime/worker.h"
#include "world/fault.h"
#include "world/load.h"

namespace tenuto {
namespace {

constexpr Duration kHeartbeat = std::chrono::milliseconds(500);
constexpr Duration kAnswerLimit = std::chrono::seconds(20);   // for the coordinator to answer
constexpr Duration kSilenceLimit = std::chrono::seconds(30);  // without a word from it
// After the conversation has ended, the process may be in a long op: it is not waited for.
constexpr Duration kLeaveLimit = std::chrono::seconds(1);
constexpr Duration kCloseLimit = std::chrono::seconds(2);
constexpr Duration kIdle = std::chrono::seconds(1);
// Steps between two looks at a paced device's lag.
constexpr int64_t kLagInterval = 10;
// Repaired connections that a report tells of; more at once are told of by their last.
constexpr size_t kRepairsTold = 16;

void say(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::fflush(stderr);
}

class WorkerRun {
 public:
  explicit WorkerRun(const WorkerSettings& settings) : settings_(settings) {}
  Status run();

 private:
  Status connect_control();
  Status set_up();
  Status make_parts();
  Status make_wire(int64_t epoch);
  void join_parts();
  Status enter(const Order& order);
  Status give_up_trust();
  Status take_back(int64_t version);
  Status connect_first() { return connect_peers(*plan_); }
  Status connect_peers(const Plan& plan);
  Error unreachable(WorkerId peer, const Error& error);
  Status load();
  Status go_on();
  void freeze(const Told& told);
  void run_steps(const Told& told);
  bool save_if_asked(const Told& told);
  bool take_plan(const Told& told);
  void step(const Told& told);
  StepInput input_of(int64_t version);
  bool ended_well(const Status& status);
  bool is_final() const;
  bool must_be_final(const Told& told) const;
  bool settle();
  bool halts();
  void conclude();
  void apply_faults(int64_t step, const std::vector<Fault>& wanted);
  void break_connections(int64_t step);
  std::function<void(int64_t)> rehearsed_end(int64_t step);
  void note_standstill(const Error& error);
  void note_repairs(const std::vector<Repair>& repairs, int64_t step);
  void choose_paths();
  bool evaluate(int64_t version, StepSummary& summary);
  void finish_summary(const std::vector<Event>& events, int64_t step, StepSummary& summary);
  void fail(const Error& error);
  void wait(Duration limit);
  void note_loss(const Done& heard);
  void tell();
  std::shared_ptr<const Told> told() const { return client_->told(); }
  Status conversation() const { return client_->state(); }
  std::string name() const { return cat("worker ", settings_.self); }
  bool is_saver(const Told& told) const {
    const auto& savers = told.instruction.savers;
    return std::find(savers.begin(), savers.end(), settings_.self) != savers.end();
  }

  const WorkerSettings settings_;
  QueueMailbox mailbox_;
  Report report_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<const Plan> plan_;  // in force
  int64_t plan_serial_ = 1;           // of plan_
  Job job_;
  std::vector<StageId> stages_;
  // The mailbox above must outlive these.
  WorkerCompute compute_;
  std::unique_ptr<Transport> transport_;
  FaultyTransport* faulty_ = nullptr;  // the transport, when it rehearses links
  StagedTransport* staged_ = nullptr;  // the transport, when the device has memory of its own
  std::set<WorkerId> connected_;       // peers that this worker has called, see connect_peers
  PathRule path_rule_;
  std::map<WorkerId, PathState> paths_;
  int64_t slots_of_plan_ = 0;  // the plan that the slots are for
  StagedCounters copied_;      // until the step before
  std::optional<Runner> runner_;
  bool rehearsing_ = false;  // links are not as [network] says
  bool entering_ = false;    // no step of this epoch has been done: peers may still connect
  std::optional<StepSummary> pending_;  // of the newest step, until its version is final
  bool in_step_ = false;                // a step is under way
  bool halted_ = false;  // the step gave numbers that are none: nothing runs in this epoch
  Status fit_ = ok();    // why this process must end: a wire that is gone may use its memory
};

Status WorkerRun::connect_control() {
  const ClientSettings settings{.coordinator = settings_.coordinator,
                                .job = settings_.job,
                                .token = settings_.token,
                                .self = settings_.self,
                                .incarnation = settings_.incarnation,
                                .connect_limit = kAnswerLimit,
                                .heartbeat = kHeartbeat,
                                .silence_limit = kSilenceLimit,
                                .return_limit = kSilenceLimit};
  Result<std::unique_ptr<Client>> client =
      connect_client(settings, report_, mailbox_, [](const std::string& sentence) {
        say(sentence);
        std::this_thread::sleep_for(kLeaveLimit);
        _exit(1);
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
  for (const auto part : {&WorkerRun::make_parts, &WorkerRun::connect_first, &WorkerRun::load}) {
    const Status done = (this->*part)();
    if (!conversation().ok()) return conversation();
    if (done.ok()) continue;
    if (told()->instruction.order.phase == Phase::Out) return ok();
    fail(done.error());
    return ok();
  }
  report_.connected = true;
  tell();
  return ok();
}

Status WorkerRun::make_parts() {
  const auto first = told();
  report_.epoch = first->instruction.order.epoch;
  plan_ = first->plan;
  plan_serial_ = report_.plan = first->instruction.plan_serial;
  Result<Job> job = job_from_toml(*first->job_toml, "the coordinator's settings");
  if (!job.ok()) return job.error();
  job_ = std::move(job).value();
  stages_ = stages_of(*plan_, settings_.self);
  if (stages_.empty()) return invalid("the plan gives no stage to this worker");
  const Status wired = make_wire(report_.epoch);
  if (!wired.ok()) return wired;
  tell();
  Result<WorkerCompute> compute = make_compute(job_, *plan_, stages_, mailbox_);
  if (!compute.ok()) return compute.error();
  compute_ = std::move(compute).value();
  join_parts();
  return ok();
}

// A wire of the epoch's own. Whatever was of another epoch ended with that one's wire: its address,
// its connections, and all that was on its way.
Status WorkerRun::make_wire(int64_t epoch) {
  const Hello hello{settings_.job, settings_.token, kWireVersion, settings_.self, epoch};
  Result<WorkerWire> wire = make_worker_wire(job_, hello, mailbox_);
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

// Connects with those of the plan's peers that it has no connection with yet. Of each pair the
// lower number connects; its ticket says that both ends have agreed.
Status WorkerRun::connect_peers(const Plan& plan) {
  const Duration limit = from_milliseconds(job_.network.connect_seconds * 1000);
  const Duration end = monotonic_clock().now() + limit;
  std::set<WorkerId> due;
  for (const WorkerId peer : peers_of(plan, settings_.self)) {
    if (settings_.self < peer && !connected_.contains(peer)) due.insert(peer);
  }
  std::map<Ticket, WorkerId> under_way;
  while (!due.empty() || !under_way.empty()) {
    const auto newest = told();
    const Instruction& now = newest->instruction;
    const bool abandoned =
        report_.connected && (now.order.epoch != report_.epoch || !report_.lost_peers.empty());
    if (now.order.phase == Phase::Out || abandoned || !conversation().ok()) {
      return Error{Code::Cancelled, Reach::Call, "told to go"};
    }
    for (size_t i = 0; i < now.order.members.size(); ++i) {
      const WorkerId peer = now.order.members[i];
      if (now.addresses[i].empty() || due.erase(peer) == 0) continue;
      const Ticket ticket = fresh_ticket();
      under_way.emplace(ticket, peer);
      const Status begun = transport_->connect(peer, {now.addresses[i]}, ticket);
      if (!begun.ok()) return unreachable(peer, begun.error());
    }
    const Duration left = end - monotonic_clock().now();
    if (left.count() <= 0) {
      const WorkerId peer = due.empty() ? under_way.begin()->second : *due.begin();
      return unreachable(
          peer,
          {Code::Timeout, Reach::Link,
           cat("no connection to worker ", peer, " (", names_of(stages_of(plan, peer)), ") within ",
               fixed(job_.network.connect_seconds, 1), " s (network.connect_seconds)")});
    }
    const Result<Done> done = mailbox_.wait(std::min(left, kIdle));
    if (!done.ok()) continue;
    const auto ended = under_way.find(done.value().ticket);
    if (ended == under_way.end()) {
      if (report_.connected) note_loss(done.value());
      continue;
    }
    if (!done.value().status.ok()) return unreachable(ended->second, done.value().status.error());
    connected_.insert(ended->second);
    under_way.erase(ended);
  }
  return ok();
}

// A peer that cannot be reached keeps a run from beginning; later it is told as lost.
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
    const Status loaded = compute_.compute->load(shards, now->instruction.order.first_step);
    if (!loaded.ok()) return loaded;
  }
  report_.version = compute_.compute->version();
  return ok();
}

Status WorkerRun::run() {
  const Status connected = connect_control();
  if (!connected.ok()) return connected;
  const Status ready = set_up();
  if (!ready.ok()) return ready;
  say(cat(name(), ": ", names_of(stages_), " of job ", settings_.job, ", process ", getpid()));
  const Status gone = go_on();
  say(cat(name(), gone.ok() ? ": told to go" : ": " + gone.error().message));
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
    const Order& order = now->instruction.order;
    if (order.phase == Phase::Out) return ok();
    if (!fit_.ok()) return fit_;
    if (order.epoch != report_.epoch) {
      const Status entered = enter(order);
      if (!entered.ok()) return entered;
      continue;
    }
    if (halted_ || !report_.failure.empty() || !report_.connected) {
      wait(kIdle);
    } else if (order.phase == Phase::Frozen) {
      freeze(*now);
    } else {
      run_steps(*now);
    }
  }
}

// Begins an epoch: at a standstill, with a wire of its own, and with what this worker holds told.
Status WorkerRun::enter(const Order& order) {
  const auto& members = order.members;
  if (std::find(members.begin(), members.end(), settings_.self) == members.end()) {
    return Error{Code::Cancelled, Reach::Worker, "the run goes on without this worker"};
  }
  halted_ = false;
  report_.epoch = order.epoch;
  report_.phase = Phase::Frozen;
  report_.failure.clear();
  report_.lost_peers.clear();
  if (!report_.connected) {  // it has nothing yet
    tell();
    return ok();
  }
  entering_ = true;
  const Status trusted = give_up_trust();
  if (!trusted.ok()) {
    fail(trusted.error());
    return ok();
  }
  report_.version = compute_.compute->version();
  // What the old wire has still to say is of no use, what peers it lost least of all.
  runner_.reset();
  transport_.reset();
  while (mailbox_.wait(Duration{}).ok()) {
  }
  const Status wired = make_wire(order.epoch);
  if (!wired.ok()) {
    fail(wired.error());
    return ok();
  }
  join_parts();
  tell();
  return ok();
}

// A version that nobody has validated is none: its step was taken on trust. One whose verdict came
// when the steps were abandoned counts, but what had to follow it did not.
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

// Gives up the step that this worker has taken beyond `version`, and whatever is of it.
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
  for (const StageId stage : stages_) {
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
    shards.push_back(std::move(shard).value());
  }
  report_.shards = std::move(shards);
  report_.version = version;
  tell();
  return true;
}

void WorkerRun::run_steps(const Told& now) {
  const Order& order = now.instruction.order;
  if (report_.phase != Phase::Running) {
    // An epoch begins at the committed version: a step beyond it is given up before anything is
    // said of running, lest it be taken for one of this epoch.
    const Status back = take_back(order.committed);
    if (!back.ok()) return fail(back.error());
    report_.phase = Phase::Running;
    tell();
  }
  if (must_be_final(now)) {
    if (settle() && !halts()) conclude();
    return;
  }
  if (is_final() && save_if_asked(now)) return;
  if (is_final() && report_.version < compute_.compute->version()) {
    report_.version = compute_.compute->version();
    tell();
  }
  const bool there = order.stop_at >= 0 && compute_.compute->version() >= order.stop_at;
  if (there || !report_.lost_peers.empty()) return wait(kIdle);
  if (take_plan(now)) step(now);
}

// Acknowledges a new plan once its peers can be reached, and changes to it at the step from which
// it is in force. False when the step must not begin.
bool WorkerRun::take_plan(const Told& now) {
  const Instruction& newest = now.instruction;
  if (newest.plan_serial != report_.plan) {
    const Status connected = connect_peers(*now.plan);
    if (!connected.ok()) {
      if (connected.error().code != Code::Cancelled) fail(connected.error());
      return false;
    }
    report_.plan = newest.plan_serial;
    tell();
  }
  const bool due = newest.plan_from >= 0 && compute_.compute->version() >= newest.plan_from;
  if (!due || newest.plan_serial == plan_serial_) return true;
  plan_ = now.plan;
  plan_serial_ = newest.plan_serial;
  return true;
}

// The links of the step: of outgoing messages on the nominal clock, of incoming ones on the real
// one: those of the job and those that were asked of the live run. The held-out pass behind a step
// has them too.
void WorkerRun::apply_faults(int64_t step, const std::vector<Fault>& wanted) {
  break_connections(step);
  std::vector<Fault> faults = job_.faults;
  faults.insert(faults.end(), wanted.begin(), wanted.end());
  compute_.compute->set_speed(speed_at(faults, step, settings_.self, job_.parallel.stages));
  if (faults.empty() && !rehearsing_) return;
  rehearsing_ = !faults.empty();
  const Cluster base = cluster_of(job_);
  const LinkStates states = links_at(faults, step, job_.parallel.stages, base);
  const WorkerId self = settings_.self;
  if (compute_.links) {
    compute_.links->set_links(states, self, static_cast<uint64_t>(job_.seed));
  }
  if (faulty_ == nullptr) return;
  for (const WorkerId peer : peers_of(*plan_, self)) {
    const auto found = states.find({peer, self});
    const LinkState state =
        found == states.end() ? LinkState{base.link(peer, self), {}} : found->second;
    faulty_->set_link(peer, {state.link.latency, state.link.bytes_per_second, state.jitter});
  }
}

// In the middle of the step's traffic: when half of the messages to the peer have left.
void WorkerRun::break_connections(int64_t step) {
  const int32_t workers = job_.worker_count();
  for (const auto& [first, second] : breaks_at(job_.faults, step, job_.parallel.stages, workers)) {
    if (first != settings_.self) continue;
    const auto& list = plan_->schedule.lists[static_cast<size_t>(first.value)];
    const WorkerId peer = second;
    const auto messages = std::count_if(list.begin(), list.end(), [&](const Op& op) {
      return op.kind == OpKind::Send && op.peer == peer;
    });
    const Status broken = transport_->break_connection(peer, (messages + 1) / 2);
    if (!broken.ok()) say(cat(name(), ": ", broken.error().message));
  }
}

// What ends this process, or makes it stand still, in the step: asked after each op of it.
std::function<void(int64_t)> WorkerRun::rehearsed_end(int64_t step) {
  const Fault* fault = end_at(job_.faults, step, settings_.self, job_.parallel.stages);
  if (fault == nullptr) return nullptr;
  const auto end = [fault](int64_t ended) {
    if (ended == fault->at_op) std::raise(fault->kind == "kill" ? SIGKILL : SIGSTOP);
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

// Between two steps nothing is under way, so each link may change its path, and the rings their
// slots. This end alone does: the other one sees the same bytes.
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

// The circumstances of whatever runs at `version`.
StepInput WorkerRun::input_of(int64_t version) {
  const int64_t epoch = report_.epoch;
  const auto standing = [this, epoch, version]() -> Standing {
    const auto newest = told();
    const Order& order = newest->instruction.order;
    const bool over =
        order.stop_at >= 0 && version >= order.stop_at && order.committed >= order.stop_at;
    return {order.committed,
            order.epoch != epoch || order.phase != Phase::Running || over || !conversation().ok()};
  };
  return {.plan = plan_.get(),
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
          .retire_limit = from_milliseconds(job_.network.silence_seconds * 1000)};
}

// What follows from a failure is reported here.
bool WorkerRun::ended_well(const Status& status) {
  if (status.ok()) {
    report_.lost_peers.clear();  // of peers that have gone home early, after their last message
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

// True when no verdict can change the version that is held any more.
bool WorkerRun::is_final() const {
  return compute_.compute->finality().version == compute_.compute->version();
}

// True when the version held is not final and has to be before anything else is done: it is to be
// saved or stopped at, or the next step runs by another plan.
bool WorkerRun::must_be_final(const Told& now) const {
  if (is_final()) return false;
  const Instruction& asked = now.instruction;
  const int64_t version = compute_.compute->version();
  const bool stops = asked.order.stop_at >= 0 && version >= asked.order.stop_at;
  const bool changes =
      asked.plan_serial != plan_serial_ && asked.plan_from >= 0 && version >= asked.plan_from;
  return stops || changes || asked.save_version == version;
}

// Makes the version held final ahead of the next step; false when that failed.
bool WorkerRun::settle() {
  return ended_well(runner_->settle(input_of(compute_.compute->version())));
}

// The version of the step that is not told yet is final: its verdict goes into the summary. True
// when the numbers are none, and control decides what becomes of the run.
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

// Tells of the step whose version is final now.
void WorkerRun::conclude() {
  if (!pending_) return;
  const int64_t seen = told()->instruction.order.committed;
  const int64_t version = pending_->step + 1;
  std::erase_if(report_.steps, [&](const StepSummary& of) { return of.step < seen; });
  std::erase_if(report_.shards, [&](const SavedShard& of) { return of.version < seen; });
  report_.seen = seen;
  report_.steps.push_back(std::move(*pending_));
  pending_.reset();
  // Whoever is to save it says that it has it when it is saved; in the middle of a step it is not.
  const bool between = compute_.compute->version() == version && !in_step_;
  if (between && told()->instruction.save_version == version && is_saver(*told())) return;
  report_.version = version;
  tell();
}

void WorkerRun::step(const Told& now) {
  const int64_t version = compute_.compute->version();
  apply_faults(version, now.instruction.faults);
  choose_paths();
  if (compute_.paced != nullptr) compute_.paced->count_lag(!entering_);
  StepSummary summary{.step = version, .start_ns = monotonic_clock().now().count()};
  StepInput input = input_of(version);
  input.ended = rehearsed_end(version);
  input.validated = [this] {
    if (!halts()) conclude();
  };
  in_step_ = true;
  const Result<std::vector<Event>> events = runner_->run_step(input);
  in_step_ = false;
  const std::vector<Repair> repairs = transport_->take_repairs();
  note_repairs(repairs, version);
  if (!ended_well(events.ok() ? ok() : events.error())) return;
  entering_ = false;
  summary.finish_ns = monotonic_clock().now().count();
  finish_summary(events.value(), version, summary);
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
  input.lost = [this](WorkerId peer, const Error&) { report_.lost_peers.push_back(peer); };
  const Result<std::vector<Event>> events = runner_->run_step(input);
  if (!ended_well(events.ok() ? ok() : events.error())) return false;
  for (const MicroLoss& of : compute_.compute->outcome().losses) {
    summary.evaluation.push_back({of.micro.value, of.loss});
  }
  return true;
}

void WorkerRun::finish_summary(const std::vector<Event>& events, int64_t step,
                               StepSummary& summary) {
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
  if (std::find(traced.begin(), traced.end(), step) != traced.end()) {
    summary.events = to_text(events);
  }
}

void WorkerRun::fail(const Error& error) {
  say(cat(name(), ": ", error.message));
  report_.failure = error.message;
  report_.failure_code = error.code;
  tell();
}

// One report at most: news from control is read from the client, a lost peer is noted, what belongs
// to an abandoned call is dropped.
void WorkerRun::wait(Duration limit) {
  const Result<Done> done = mailbox_.wait(limit);
  if (!done.ok()) return;
  note_loss(done.value());
}

// A peer that is lost between two steps is told of once.
void WorkerRun::note_loss(const Done& heard) {
  if (heard.ticket != kNoTicket || heard.peer.value < 0) return;
  const auto& lost = report_.lost_peers;
  if (std::find(lost.begin(), lost.end(), heard.peer) != lost.end()) return;
  report_.lost_peers.push_back(heard.peer);
  tell();
}

void WorkerRun::tell() { client_->report(report_); }

}  // namespace

Status run_worker(const WorkerSettings& settings) { return WorkerRun(settings).run(); }

}  // namespace tenuto
