#include "worker/worker_process.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/host.h"
#include "base/text.h"
#include "protocol/saved_shard.h"
#include "transport/address.h"
#include "transport/transport.h"
#include "worker/served_worker.h"
#include "worker/worker_parts.h"
#include "world/load.h"
#include "world/memory_need.h"

namespace tenuto {
namespace {

constexpr Duration kIdle = std::chrono::seconds(1);
constexpr const char* kJobSource = "the coordinator's settings";
constexpr Duration kCloseLimit = std::chrono::seconds(2);

}  // namespace

WorkerProcess::WorkerProcess(const WorkerSettings& settings, RealDevice device,
                             Conversation& conversation)
    : settings_(settings),
      device_(std::move(device)),
      tls_(conversation.tls),
      mailbox_(conversation.mailbox),
      state_(begin_worker({.job = settings.job,
                           .coordinator = settings.coordinator,
                           .self = settings.self,
                           .incarnation = settings.incarnation,
                           .process = getpid(),
                           .host = host_name(),
                           .answer_limit = kAnswerLimit,
                           .mend_limit = kMendLimit},
                          conversation.begun)),
      client_(*conversation.client) {}

WorkerEnd WorkerProcess::run() {
  while (!end_) {
    hear();
    if (end_) break;
    if (outcomes_.empty()) {
      wait();
      continue;
    }
    WorkerInput::What what = std::move(outcomes_.front());
    outcomes_.pop_front();
    decide(std::move(what));
  }
  // Wait until the last messages have left: peers may need them.
  if (transport_) {
    const Status closed = transport_->close(kCloseLimit);
    if (!closed.ok()) say(cat(name(), ": ", closed.error().message));
  }
  return *end_;
}

// Passes on what the coordinator says, if it is new.
void WorkerProcess::hear() {
  auto told = client_.told();
  if (told && told != state_.told) {
    if (transport_ != nullptr) {
      const auto count = workers_beside(told->instruction.addresses, transport_->address().text);
      if (count) *workers_here_ = *count;
    }
    decide(Heard{std::move(told)});
  }
  const Status conversation = client_.state();
  if (!conversation.ok() && state_.conversation.ok()) {
    decide(ConversationOver{conversation.error()});
  }
  hear_of_writer();
}

// Passes on what has become of a copy. If steps have ended, nothing is slowed down by writing it.
void WorkerProcess::hear_of_writer() {
  if (state_.told && !writer_.is_idle()) {
    const Directive& directive = state_.told->instruction.directive;
    const bool over = directive.stop_at >= 0 && directive.committed >= directive.stop_at;
    if (over || directive.phase != Phase::Running) writer_.hurry();
  }
  if (auto written = writer_.take()) {
    decide(CopyWritten{written->version, written->status, std::move(written->shards)});
  }
}

// Waits for one message in the mailbox. hear() reads the coordinator's instructions.
void WorkerProcess::wait() {
  Duration limit = kIdle;
  if (state_.deadline) limit = std::min(limit, *state_.deadline - monotonic_clock().now());
  const Result<Done> done = mailbox_.wait(std::max(limit, Duration{}));
  if (done.ok()) return note(done.value());
  outcomes_.push_back(Idle{});
}

// Turns the end of a call into an outcome, if the call was not abandoned.
void WorkerProcess::note(const Done& done) {
  if (transfers_.note(done, monotonic_clock().now())) return move_transfers(ok());
  if (const auto call = calls_.find(done.ticket); call != calls_.end()) {
    outcomes_.push_back(Connected{call->second, wire_epoch_, done.status});
    calls_.erase(call);
  } else if (done.ticket == kNoTicket && done.peer.value >= 0) {
    outcomes_.push_back(LostPeer{done.peer, wire_epoch_});
  }
}

// Decides what follows from the input, and executes it. While a step runs, the state of the device
// is taken as it was before.
void WorkerProcess::decide(WorkerInput::What what) {
  DeviceState device = state_.device;
  if (compute_.compute && !in_step_) {
    device = {compute_.compute->version(), compute_.compute->finality()};
  }
  WorkerDecision decision = decide_worker(
      std::move(state_), {monotonic_clock().now(), std::move(device), std::move(what)});
  state_ = std::move(decision.state);
  for (WorkerAction& action : decision.actions) {
    std::visit([this](auto& each) { execute(each); }, action);
  }
  answer_probes();
}

void WorkerProcess::execute(Tell& tell) { client_.report(std::move(tell.report)); }

void WorkerProcess::execute(const Say& line) { say(line.sentence); }

void WorkerProcess::execute(const Leave& leave) {
  end_ = WorkerEnd{leave.exit_code, leave.sentence, leave.left_out};
}

Result<std::shared_ptr<const Job>> WorkerProcess::read_job(
    const std::vector<StageId>& stages) const {
  Result<Job> job = job_from_toml(*state_.job_toml, kJobSource);
  if (!job.ok()) return job.error();
  if (stages.empty()) return invalid("the plan gives no stage to this worker");
  const Status fits = check_memory_of(job.value(), *state_.plan, {self()});
  if (!fits.ok()) return fits.error();
  return std::make_shared<const Job>(std::move(job).value());
}

void WorkerProcess::execute(const Prepare& prepare) {
  auto read = read_job(prepare.stages);
  if (!read.ok()) return outcomes_.push_back(Prepared{read.error(), nullptr, {}});
  const Status wired = make_wire(*read.value(), state_.report.epoch);
  const std::string address = wired.ok() ? transport_->address().text : std::string();
  outcomes_.push_back(Prepared{wired, read.value(), address});
}

void WorkerProcess::execute(const MakeDevice&) {
  Result<WorkerCompute> made =
      make_compute(job(), *state_.plan, self(), state_.stages, mailbox_, device_);
  if (!made.ok()) return outcomes_.push_back(DeviceMade{made.error()});
  compute_ = std::move(made).value();
  join_parts();
  const bool blocking = compute_.links != nullptr && compute_.links->blocking();
  outcomes_.push_back(DeviceMade{ok(), compute_.compute->resumes() && !blocking});
}

// Makes a transport for this epoch alone. The address, connections and messages of an earlier epoch
// have ended with its transport.
Status WorkerProcess::make_wire(const Job& job, int64_t epoch) {
  const Hello hello{settings_.job, settings_.token, kWireVersion, self(), epoch};
  Result<WorkerWire> wire = make_worker_wire(job, hello, mailbox_, device_, {tls_, workers_here_});
  if (!wire.ok()) return wire.error();
  transport_ = std::move(wire.value().transport);
  wire_epoch_ = epoch;
  faulty_ = wire.value().faulty;
  staged_ = wire.value().staged;
  path_rule_ = wire.value().paths;
  paths_.clear();
  slots_of_plan_ = 0;
  copied_ = {};
  return ok();
}

void WorkerProcess::join_parts() {
  if (staged_ != nullptr) staged_->use(compute_.compute->copies());
  runner_.emplace(Machine{transport_.get(), compute_.compute.get(), compute_.compute.get(),
                          &mailbox_, &monotonic_clock(), compute_.pacer.get(),
                          compute_.compute->growth()});
}

// Ends the transport of the epoch before and discards what it has posted.
void WorkerProcess::execute(const RenewTransport& renew) {
  std::vector<StepInventory> held =
      inventories_of(holding_, compute_.compute->version(), *state_.plan,
                     compute_.compute->outcome().losses, state_.report.steps);
  runner_.reset();
  transport_.reset();
  transfers_.start_over();
  calls_.clear();
  while (mailbox_.wait(Duration{}).ok()) {
  }
  const Status wired = make_wire(job(), renew.epoch);
  if (!wired.ok()) return outcomes_.push_back(Renewed{wired, {}, {}});
  join_parts();
  outcomes_.push_back(Renewed{ok(), transport_->address().text, std::move(held)});
}

void WorkerProcess::execute(const Connect& connect) {
  const Ticket ticket = fresh_ticket();
  const Status begun = transport_->connect(connect.peer, {connect.address}, ticket);
  if (!begun.ok()) return outcomes_.push_back(Connected{connect.peer, wire_epoch_, begun});
  calls_.emplace(ticket, connect.peer);
}

void WorkerProcess::execute(const Probe& probe) { probes_.push_back(probe); }

// Executes the probes of one decision at the same time, within the longest of their limits: the
// worker does nothing else meanwhile.
void WorkerProcess::answer_probes() {
  std::vector<std::string> addresses;
  Duration limit{};
  for (const Probe& probe : probes_) {
    addresses.push_back(probe.address);
    limit = std::max(limit, probe.limit);
  }
  const std::vector<bool> reachable = are_reachable(addresses, limit);
  for (size_t i = 0; i < probes_.size(); ++i) {
    outcomes_.push_back(Probed{probes_[i].peer, probes_[i].address, reachable[i]});
  }
  probes_.clear();
}

void WorkerProcess::execute(const Load& load) {
  Status loaded = ok();
  if (!load.shards.empty()) loaded = compute_.compute->load(load.shards, load.version);
  if (!loaded.ok()) {
    Error error = loaded.error();
    const std::string folder = std::filesystem::path(load.shards.front()).parent_path().string();
    error.message = cat(folder, " cannot be loaded: ", error.message);
    loaded = error;
  }
  outcomes_.push_back(Loaded{loaded});
}

void WorkerProcess::execute(const Adopt& adopt) {
  outcomes_.push_back(Adopted{compute_.compute->adopt(adopt.version)});
}

void WorkerProcess::execute(const Hold& hold) {
  Status held = check_memory_of(job(), *state_.plan, {self()});
  if (held.ok()) held = compute_.compute->hold(*state_.plan, hold.stages);
  outcomes_.push_back(HeldStages{held});
}

void WorkerProcess::execute(const Undo&) { outcomes_.push_back(Undone{compute_.compute->undo()}); }

void WorkerProcess::execute(const Save& save) {
  std::error_code failure;
  std::filesystem::create_directories(save.directory, failure);
  Saved saved;
  if (save.copies) {
    saved.status = copy_state(save);
    saved.copied = true;
    return outcomes_.push_back(std::move(saved));
  }
  finish_writing();
  for (const StageId stage : save.stages) {
    Result<SavedShard> shard = save_stage(save, stage);
    if (!shard.ok()) {
      saved.status = shard.error();
      break;
    }
    saved.shards.push_back(std::move(shard).value());
  }
  outcomes_.push_back(std::move(saved));
}

// There is one copy at most: a state that is being written is waited for.
Status WorkerProcess::copy_state(const Save& save) {
  finish_writing();
  CopiedState copied{save.version, save.directory, {}};
  for (const StageId stage : save.stages) {
    Result<StateCopy> copy = compute_.compute->copy_state(stage);
    if (!copy.ok()) return copy.error();
    copied.stages.push_back({stage, std::move(copy).value()});
  }
  copy_ = std::move(copied);
  return ok();
}

// Waits until nothing is being written. What has become of it is passed on first.
void WorkerProcess::finish_writing() {
  if (auto written = writer_.finish()) {
    outcomes_.push_back(CopyWritten{written->version, written->status, std::move(written->shards)});
  }
}

void WorkerProcess::execute(const WriteCopy&) {
  CHECK(copy_, "a copy is made before it is written");
  finish_writing();
  writer_.begin(std::move(*copy_));
  copy_.reset();
}

void WorkerProcess::execute(const DropCopy&) { copy_.reset(); }

Result<SavedShard> WorkerProcess::save_stage(const Save& save, StageId stage) const {
  const std::string file = state_file_name(stage);
  const Status saved = compute_.compute->save(stage, cat(save.directory, "/", file));
  if (!saved.ok()) return saved.error();
  Result<SavedShard> shard = describe_shard(save.directory, file, save.version);
  if (shard.ok()) shard.value().stage = stage;
  return shard;
}

void WorkerProcess::execute(const TransferState&) {
  move_transfers(transfers_.begin(state_.told->instruction.joiners, transfer_moment()));
}

// Goes on with the transfers, if the next step waits for them.
void WorkerProcess::move_transfers(const Status& before) {
  if (state_.situation != WorkerSituation::Transferring) return;
  const Status status = before.ok() ? transfers_.advance(transfer_moment()) : before;
  outcomes_.push_back(TransferMoved{status, transfers_.ready(), transfers_.received()});
}

TransferMoment WorkerProcess::transfer_moment() {
  return {.self = self(),
          .epoch = state_.report.epoch,
          .version = compute_.compute->version(),
          .plan_serial = state_.plan_serial,
          .voids = runner_->voids(),
          .now = monotonic_clock().now(),
          .transport = transport_.get(),
          .state = compute_.compute.get()};
}

std::string WorkerProcess::name() const { return cat("worker ", self()); }

// The job says which of the two ways the worker goes. A job that cannot be read is reported by the
// first one.
WorkerEnd run_worker(const WorkerSettings& settings, RealDevice device) {
  Conversation conversation;
  const Status begun = begin_conversation(settings, conversation);
  if (!begun.ok()) return {exit_code_of(begun.error()), begun.error().message};
  const auto told = first_told(conversation);
  if (told != nullptr && told->job_toml != nullptr) {
    const Result<Job> job = job_from_toml(*told->job_toml, kJobSource);
    if (job.ok() && job.value().is_served()) {
      return run_served_worker(settings, device, job.value(), conversation);
    }
  }
  return WorkerProcess(settings, std::move(device), conversation).run();
}

}  // namespace tenuto
