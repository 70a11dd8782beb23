#include "worker/served_worker.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/host.h"
#include "base/text.h"
#include "parameter_server/run_host.h"
#include "transport/pace.h"
#include "worker/client_link.h"
#include "worker/decide_worker.h"
#include "worker/part_compute.h"
#include "worker/range_files.h"
#include "worker/served_part.h"
#include "worker/server_start.h"
#include "worker/worker_parts.h"
#include "world/memory_need.h"

namespace tenuto {
namespace {

constexpr Duration kCloseLimit = std::chrono::seconds(2);

// The parameters of all stages with which a run begins. Each stage's device is made once for them,
// in the host's memory, so that a server needs no accelerator: the values are the same on all.
Result<std::vector<StageParameters>> stage_parameters(Job job, const Plan& plan,
                                                      const RealDevice& real) {
  if (job.device.kind != "paced") job.device.kind = "cpu";
  std::vector<StageParameters> all;
  for (int32_t s = 0; s < std::ssize(plan.stages); ++s) {
    const StageId stage{s};
    const auto holder = holder_of(plan, stage);
    if (!holder.ok()) return holder.error();
    QueueMailbox mailbox;
    const auto device = make_compute(job, plan, holder.value(), {stage}, mailbox, real);
    if (!device.ok()) return device.error();
    auto own = stage_parameters_of(*device.value().compute, stage);
    if (!own.ok()) return own.error();
    all.push_back(std::move(own).value());
  }
  return all;
}

// The link of a process with keepers. When these have been placed for the first time, they have
// what they begin with.
class KeeperLink : public servers::HostLink {
 public:
  KeeperLink(ClientLink& link, RangeStart& ranges) : link_(link), ranges_(ranges) {}
  Result<std::optional<servers::HostCommand>> next(Duration limit) override {
    return link_.next(limit);
  }
  bool has_ended() const override { return link_.has_ended(); }
  Status report(const servers::HostReport& one) override {
    if (std::holds_alternative<servers::PlacedReport>(one)) ranges_.begin();
    return link_.report(one);
  }

 private:
  ClientLink& link_;
  RangeStart& ranges_;
};

class ServedWorker {
 public:
  ServedWorker(const WorkerSettings& settings, const RealDevice& device, const Job& job,
               Conversation& conversation)
      : settings_(settings),
        device_(device),
        job_(job),
        conversation_(conversation),
        link_(*conversation.client, {settings.self, settings.incarnation, host_name()}) {}

  WorkerEnd run() {
    const Status served = serve();
    if (served.ok()) return end_as_told();
    const Error& why = served.error();
    if (link_.is_left_out()) return {kTryAgain, why.message, true};
    if (!conversation_.client->state().ok()) return {exit_code_of(why), why.message};
    say(cat(name(), ": ", why.message));
    link_.tell_failure(why, kReturnLimit);
    if (link_.has_ended()) return end_as_told();
    return {exit_code_of(why), cat(name(), ": ", why.message)};
  }

 private:
  // Returns when the coordinator has ended the run.
  Status serve() {
    first_ = conversation_.client->told();
    if (first_ == nullptr || first_->plan == nullptr) {
      return invalid("the coordinator's first instruction has no plan");
    }
    const int32_t number = settings_.self.value;
    if (number >= job_.process_count()) {
      return invalid(cat("the job has ", job_.process_count(), " workers, servers included, and ",
                         "this is worker ", number));
    }
    if (number >= job_.worker_count()) return serve_ranges();
    const int32_t stages = job_.parallel.stages;
    return serve_part({{number % stages}, {number / stages}});
  }

  Status serve_part(const PartPlace& place) {
    auto made = ServedPart::make(part_at(place));
    if (!made.ok()) return made.error();
    ServedPart& part = *made.value();
    greet(cat("replica ", place.replica, ", stage ", place.stage));
    link_.tell_elements(part.elements());
    servers::HostSettings host;
    host.process.kind = servers::ProcessKind::Part;
    host.process.replica = place.replica;
    host.process.stage = place.stage;
    host.trainer = &part;
    host.wire = part.has_siblings() ? &part : nullptr;
    host.reports_iterations = part.is_last();
    const auto number = link_.process();
    if (!number.ok()) return number.error();
    if (!number.value()) return ok();
    if (job_.has_servers()) return be_hosted(*number.value(), link_, std::move(host));
    auto own = part.initial_parameters();
    if (!own.ok()) return own.error();
    std::vector<StageParameters> stages(first_->plan->stages.size());
    stages[static_cast<size_t>(place.stage.value)] = std::move(own).value();
    return be_keeper(*number.value(), std::move(stages), std::move(host));
  }

  ServedPartSettings part_at(const PartPlace& place) {
    ServedPartSettings settings;
    settings.job = job_;
    settings.plan = *first_->plan;
    settings.place = place;
    settings.make_device = [this, place](WorkerId self, Mailbox& mailbox) -> Result<WorkerCompute> {
      const Status fits = check_memory_of(job_, *first_->plan, {self});
      if (!fits.ok()) return fits.error();
      return make_compute(job_, *first_->plan, self, {place.stage}, mailbox, device_);
    };
    settings.make_wire = [this](WorkerId self, int64_t epoch, Mailbox& mailbox) {
      return make_wire(job_, {settings_.job, settings_.token, kWireVersion, self, epoch}, mailbox);
    };
    settings.wake_host = [this] { conversation_.mailbox.post(Done{}); };
    settings.fail = [this](const Error& why) { link_.fail(why); };
    return settings;
  }

  Status serve_ranges() {
    auto stages = stage_parameters(job_, *first_->plan, device_);
    if (!stages.ok()) return stages.error();
    greet("server");
    const auto number = link_.process();
    if (!number.ok()) return number.error();
    if (!number.value()) return ok();
    servers::HostSettings host;
    host.process.kind = servers::ProcessKind::Server;
    return be_keeper(*number.value(), std::move(stages).value(), std::move(host));
  }

  // Runs this process as that of the number. It keeps ranges of the stages whose parameters are
  // here, and decides if it is told to.
  Status be_keeper(WorkerId number, std::vector<StageParameters> stages,
                   servers::HostSettings host) {
    const std::vector<std::string> shards = shards_for(number);
    RangeStart ranges(job_, std::move(stages), shards);
    auto decider = decider_start_of(job_, shards);
    if (!decider.ok()) return decider.error();
    auto chooser = chooser_of(job_);
    if (!chooser.ok()) return chooser.error();
    host.peers.decider = std::move(decider).value();
    host.peers.make_store = [this, &ranges](const servers::ElementRange& range) {
      return store_of(ranges, range);
    };
    host.chooser = std::move(chooser).value();
    host.save_state = [this](const servers::ElementRange& range, const servers::SavedState& state) {
      return save(range, state);
    };
    KeeperLink link(link_, ranges);
    return be_hosted(number, link, std::move(host));
  }

  // The files that the run goes on from. A process that comes when the run has begun needs none, as
  // other keepers give it their state; and the checkpoint may have been removed by then. Such a
  // process has a number above those of the first processes.
  std::vector<std::string> shards_for(WorkerId number) const {
    const std::vector<std::string>& shards = first_->instruction.resume_shards;
    if (number.value < job_.process_count()) return shards;
    const std::optional<std::string> record = path_of(shards, kRecordFile);
    std::error_code failure;
    if (record && std::filesystem::exists(*record, failure)) return shards;
    return {};
  }

  // Without a store this process ends as soon as it speaks with the host again, which is before
  // anybody uses the store.
  std::unique_ptr<servers::ParameterStore> store_of(const RangeStart& ranges,
                                                    const servers::ElementRange& range) {
    auto made = ranges.make(range);
    if (made.ok()) return std::move(made).value();
    link_.fail(made.error());
    return nullptr;
  }

  Result<std::vector<servers::SavedFile>> save(const servers::ElementRange& range,
                                               const servers::SavedState& state) const {
    const std::string& directory = link_.told()->instruction.save_directory;
    if (directory.empty()) return invalid("the coordinator has named no folder for checkpoints");
    const Mass full{job_.full_mass()};
    return write_range(unfinished_folder(directory, state.mass, full), range, state);
  }

  // Runs this process as that of the number, until the run has ended.
  Status be_hosted(WorkerId number, servers::HostLink& link, servers::HostSettings host) {
    // What goes over it lies in the host's memory, on whatever device the parts compute.
    Job job = job_;
    job.device.kind = "cpu";
    const Hello hello{settings_.job, settings_.token, kWireVersion, number, 0};
    // Only a ledger limits what is sent.
    if (!job.sync.ledger.empty()) host.pace = std::make_shared<SendPace>();
    auto wire = make_wire(job, hello, conversation_.mailbox, host.pace);
    if (!wire.ok()) return wire.error();
    host.process.number = number;
    host.process.port = port_rate_of_device(job_.network.device);
    host.choice = mode_choice_of(job_);
    Transport& transport = *wire.value().transport;
    const Status hosted =
        servers::run_host(transport, conversation_.mailbox, link, std::move(host));
    const Status closed = transport.close(kCloseLimit);
    if (!closed.ok()) say(cat(name(), ": ", closed.error().message));
    return hosted;
  }

  // How many processes of the run are on this host, is not known: they are taken to be too many for
  // a wire that polls.
  Result<WorkerWire> make_wire(const Job& job, const Hello& hello, Mailbox& mailbox,
                               std::shared_ptr<SendPace> pace = {}) const {
    const auto here =
        std::make_shared<const std::atomic<int32_t>>(std::numeric_limits<int32_t>::max());
    return make_worker_wire(job, hello, mailbox, device_,
                            {conversation_.tls, here, std::move(pace)});
  }

  WorkerEnd end_as_told() const {
    say(cat(name(), ": the coordinator told this worker to leave"));
    const Leave leave = leave_as_told(link_.told()->instruction, name());
    return {leave.exit_code, leave.sentence, leave.left_out};
  }

  void greet(const std::string& what) const {
    say(cat(name(), ": ", what, " of job ", settings_.job, ", process ", getpid()));
  }
  std::string name() const { return cat("worker ", settings_.self); }

  const WorkerSettings& settings_;
  const RealDevice& device_;
  const Job& job_;
  Conversation& conversation_;
  ClientLink link_;
  std::shared_ptr<const Told> first_;  // the instruction with which this process begins
};

}  // namespace

WorkerEnd run_served_worker(const WorkerSettings& settings, const RealDevice& device,
                            const Job& job, Conversation& conversation) {
  return ServedWorker(settings, device, job, conversation).run();
}

}  // namespace tenuto
