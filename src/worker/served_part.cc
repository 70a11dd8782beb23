#include "worker/served_part.h"

#include <atomic>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/processor_use.h"
#include "base/text.h"
#include "parameter_server/job_store.h"
#include "runtime/given_parameters.h"
#include "runtime/path.h"
#include "runtime/staged.h"
#include "runtime/worker.h"
#include "worker/worker_parts.h"

namespace tenuto {

Result<WorkerId> holder_of(const Plan& plan, StageId stage) {
  const bool is_there = stage.value >= 0 && stage.value < std::ssize(plan.stages);
  if (is_there && !plan.stages[static_cast<size_t>(stage.value)].holders.empty()) {
    return plan.stages[static_cast<size_t>(stage.value)].holders.front();
  }
  return invalid(cat("stage ", stage, " has no holder in the plan of one pipeline, which has ",
                     plan.stages.size(), " stages"));
}

// ---- the device ------------------------------------------------------------------------------

ServedPart::ServedPart(ServedPartSettings settings) : settings_(std::move(settings)) {}

ServedPart::~ServedPart() = default;

Result<std::unique_ptr<ServedPart>> ServedPart::make(ServedPartSettings settings) {
  std::unique_ptr<ServedPart> part(new ServedPart(std::move(settings)));
  if (const Status prepared = part->prepare(); !prepared.ok()) return prepared.error();
  return part;
}

Status ServedPart::prepare() {
  const auto holder = holder_of(settings_.plan, settings_.place.stage);
  if (!holder.ok()) return holder.error();
  self_ = holder.value();
  auto made = settings_.make_device(self_, mailbox_);
  if (!made.ok()) return made.error();
  device_ = std::move(made).value();
  Hello hello;
  hello.version = kWireVersion;
  hello.self = self_;
  wire_.transport = make_memory_transport(alone_, hello, mailbox_);
  // Also with other parts: what the plan or the device cannot do is said before the run begins.
  const Status started = start_trainer();
  if (!started.ok() || !has_siblings()) return started;
  return end();
}

// The optimizer of local steps is that of the job, for the whole stage.
LocalSteps ServedPart::make_local_steps() const {
  const GivenParameters& given = *device_.compute->given_parameters();
  const StageId stage = settings_.place.stage;
  const servers::ElementRange all{stage, 0, given.parameter_count(stage)};
  return LocalSteps(servers::store_settings_of(settings_.job, all, given.decayed_count(stage)));
}

int64_t ServedPart::elements() const {
  return device_.compute->given_parameters()->parameter_count(settings_.place.stage);
}

Result<StageParameters> ServedPart::initial_parameters() const {
  return stage_parameters_of(*device_.compute, settings_.place.stage);
}

bool ServedPart::is_last() const {
  return settings_.place.stage.value + 1 == std::ssize(settings_.plan.stages);
}

Status ServedPart::start_trainer() {
  PartMachine machine;
  machine.transport = wire_.transport.get();
  machine.device = device_.compute.get();
  machine.mailbox = &mailbox_;
  machine.clock = &monotonic_clock();
  machine.epoch = epoch_;
  auto part = PartCompute::make(settings_.job, settings_.plan, settings_.place, machine);
  if (!part.ok()) return part.error();
  compute_.emplace(std::move(part).value());
  if (!local_steps_) local_steps_.emplace(make_local_steps());
  BackgroundTrainerSettings training;
  training.local_steps = &*local_steps_;
  training.compute = [this](std::span<const servers::MicroRange> micros,
                            std::span<const float> parameters, const std::atomic<bool>& stop) {
    return looked_at(compute_->run(micros, parameters, &stop));
  };
  training.validate = [this](std::span<const float> parameters, const std::atomic<bool>& stop) {
    return looked_at(compute_->validate(parameters, &stop));
  };
  training.last_validation = [this](Mass applied) {
    return settings_.job.last_validation(applied.micros / settings_.job.full_mass());
  };
  training.wake_compute = [this] { mailbox_.post(Done{}); };
  training.wake_host = settings_.wake_host;
  training.fail = [this](const Error& why) { take_failure(why); };
  training.look = [] { return processor_use(); };
  training.iteration = {settings_.job.parallel.micros};
  trainer_.emplace(std::move(training));
  trainer_->limit_cores(cores_);
  return ok();
}

// Called in the trainer's thread. It is read when that thread has ended.
template <class Value>
Result<Value> ServedPart::looked_at(Result<Value> made) {
  if (!made.ok() && made.error().reach == Reach::Job) unusable_ = made.error();
  return made;
}

// The trainer's thread has ended. If another part is lost, that is no failure of this one.
void ServedPart::take_failure(const Error& why) {
  const std::vector<StageId> lost = compute_->lost_stages();
  if (unusable_ || lost.empty()) return settings_.fail(why);
  for (const StageId stage : lost) note_lost(stage);
  say(cat("stage ", settings_.place.stage, " of replica ", settings_.place.replica,
          " gives up its work, and waits for the other stages: ", why.message));
}

// ---- the trainer -----------------------------------------------------------------------------

Status ServedPart::begin(const servers::Work& work, const std::vector<servers::Payload>& parameters,
                         Duration run_begun) {
  if (trainer_) return trainer_->begin(work, parameters, run_begun);
  return invalid(cat("stage ", settings_.place.stage, " of replica ", settings_.place.replica,
                     " got a work before it was connected to the other stages"));
}

std::optional<servers::ComputedIteration> ServedPart::advance(Duration now) {
  if (!trainer_) return {};
  return trainer_->advance(now);
}

void ServedPart::limit_cores(double cores) {
  cores_ = cores;
  if (trainer_) trainer_->limit_cores(cores);
}

std::optional<servers::ValidatedReport> ServedPart::take_validated() {
  if (!trainer_) return {};
  return trainer_->take_validated();
}

// ---- the wire --------------------------------------------------------------------------------

Status ServedPart::end() {
  trainer_.reset();
  compute_.reset();
  connecting_.clear();
  known_lost_.clear();
  lost_.clear();
  // Calls of the transport may still use the memory of the device.
  if (unusable_) return *unusable_;
  wire_ = WorkerWire{};
  while (mailbox_.wait(Duration{}).ok()) {
  }
  return ok();
}

// Each replica counts its epochs apart, so that a part that reaches one of another replica, at an
// address that was in use before, is refused.
Result<std::string> ServedPart::listen(int64_t epoch) {
  if (const Status ended = end(); !ended.ok()) return ended.error();
  epoch_ = epoch * settings_.job.parallel.pipelines + settings_.place.replica.value;
  auto made = settings_.make_wire(self_, epoch_, mailbox_);
  if (!made.ok()) return made.error();
  wire_ = std::move(made).value();
  if (wire_.staged != nullptr) {
    wire_.staged->use(device_.compute->copies());
    wire_.staged->set_slots(ring_slots(settings_.plan, self_));
    for (const WorkerId peer : peers_of(settings_.plan, self_)) {
      wire_.staged->set_path(peer, first_path(wire_.paths).path);
    }
  }
  return wire_.transport->address().text;
}

Status ServedPart::connect(const std::vector<std::string>& addresses) {
  if (wire_.transport == nullptr || addresses.size() != settings_.plan.stages.size()) {
    return invalid(cat("stage ", settings_.place.stage, " of replica ", settings_.place.replica,
                       ": expected the addresses of ", settings_.plan.stages.size(),
                       " stages for a wire that listens, found ", addresses.size()));
  }
  for (int32_t s = 0; s < settings_.place.stage.value; ++s) {
    const auto peer = holder_of(settings_.plan, {s});
    if (!peer.ok()) return peer.error();
    const Ticket ticket = fresh_ticket();
    const Status begun =
        wire_.transport->connect(peer.value(), {addresses[static_cast<size_t>(s)]}, ticket);
    if (!begun.ok()) return begun;
    connecting_.emplace(ticket, StageId{s});
  }
  return ok();
}

Result<bool> ServedPart::go_on() {
  if (trainer_) return true;
  while (!connecting_.empty()) {
    const Result<Done> done = mailbox_.wait(Duration{});
    if (!done.ok()) return false;
    note(done.value());
  }
  if (!known_lost_.empty()) return false;
  const Status started = start_trainer();
  if (!started.ok()) return started.error();
  return true;
}

void ServedPart::note(const Done& done) {
  if (const auto call = connecting_.find(done.ticket); call != connecting_.end()) {
    if (!done.status.ok()) note_lost(call->second);
    connecting_.erase(call);
    return;
  }
  if (done.ticket != kNoTicket || done.peer.value < 0) return;
  for (int32_t s = 0; s < std::ssize(settings_.plan.stages); ++s) {
    const auto holder = holder_of(settings_.plan, {s});
    if (holder.ok() && holder.value() == done.peer) note_lost({s});
  }
}

void ServedPart::note_lost(StageId stage) {
  if (known_lost_.insert(stage).second) lost_.push_back(stage);
}

std::vector<StageId> ServedPart::take_lost() { return std::exchange(lost_, {}); }

}  // namespace tenuto
