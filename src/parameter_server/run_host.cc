#include "parameter_server/run_host.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/host.h"
#include "base/text.h"
#include "parameter_server/account.h"
#include "parameter_server/connect.h"

namespace tenuto::servers {

namespace {

constexpr Duration kFirstCommand = std::chrono::seconds(60);
constexpr Duration kConnectLimit = std::chrono::seconds(20);    // of one process
constexpr Duration kLook = std::chrono::milliseconds(10);       // for commands
constexpr Duration kIdleLook = std::chrono::milliseconds(100);  // when all is done
constexpr Duration kTrafficEvery = std::chrono::seconds(1);
constexpr Duration kNever = Duration::max();

// The commands and the peers of one process.
class HostLoop {
 public:
  HostLoop(PeerNet& net, HostLink& link, HostSettings settings)
      : net_(net),
        link_(link),
        process_(net, settings.peers),
        choice_(settings.choice, std::move(settings.chooser)),
        forming_(settings.process.replica, settings.wire),
        settings_(std::move(settings)) {}

  Status serve() {
    while (!link_.has_ended()) {
      if (const Status fault = turn(); !fault.ok()) return fault;
    }
    return ok();
  }

 private:
  // Messages, then commands, then what has to be done by itself.
  Status turn() {
    if (!is_finished_) {
      if (const Status fault = process_.wait(pause()); !fault.ok()) return fault;
    }
    note_work();
    for (const WorkerId lost : process_.take_lost()) {
      if (const Status fault = link_.report(LostReport{lost}); !fault.ok()) return fault;
    }
    if (const Status fault = follow_commands(); !fault.ok()) return fault;
    if (is_finished_) return ok();
    if (const Status fault = forming_.advance(monotonic_clock().now()); !fault.ok()) return fault;
    if (const Status fault = report_forming(); !fault.ok()) return fault;
    if (const Status fault = train(); !fault.ok()) return fault;
    if (const Status fault = choose(); !fault.ok()) return fault;
    if (const Status fault = report_what_is_done(); !fault.ok()) return fault;
    if (const Status fault = report_traffic(); !fault.ok()) return fault;
    return finishes_ && may_finish() ? finish() : ok();
  }

  bool may_finish() const {
    const Decider* decider = process_.decider();
    if (decider == nullptr) return process_.knows_save(save_);
    return process_.has_committed_all() && process_.knows_save(decider->record().save);
  }

  // Until the next moment at which something has to be done.
  Duration pause() const { return std::clamp(due_ - monotonic_clock().now(), Duration{}, kLook); }

  Status follow_commands() {
    while (true) {
      const auto command = link_.next(is_finished_ ? kIdleLook : Duration{});
      if (!command.ok()) return command.error();
      if (!command.value()) return ok();
      const Status fault =
          std::visit([this](const auto& one) { return take(one); }, *command.value());
      if (!fault.ok()) return fault;
    }
  }

  Status take(const ConnectCommand&) {
    return invalid(cat("process ", settings_.process.number,
                       " is connected: expected another command than to connect"));
  }
  Status take(const BeginCommand& command) {
    run_begun_ = command.moment;
    return ok();
  }
  Status take(const MembersCommand& command) {
    if (const Status fault = process_.place(command.placed); !fault.ok()) return fault;
    if (const Status fault = forming_.take(command.placed); !fault.ok()) return fault;
    return report_forming();
  }
  Status take(const FormCommand& command) { return forming_.take(command); }
  Status take(const InstallCommand&) { return process_.install(); }
  Status take(const LostCommand& command) {
    process_.lose(command.process);
    return ok();
  }
  Status take(const MeasuredCommand& command) { return choice_.add(command.iteration); }
  Status take(const ModeCommand& command) { return choice_.want(command.mode); }
  Status take(const StopCommand&) {
    is_stopped_ = true;
    due_ = kNever;
    return link_.report(StoppedReport{});
  }
  Status take(const FinishCommand& command) {
    finishes_ = true;
    save_ = command.save;
    return ok();
  }
  Status take(const SaveCommand&) { return process_.save(); }
  Status take(const LeaseCommand& command) {
    choice_.set_gate(command.may_leave);
    if (settings_.trainer != nullptr) settings_.trainer->limit_cores(command.cores);
    if (settings_.pace == nullptr) return ok();
    double rate = 0;
    for (const SendingLimit& limit : command.sending) {
      if (limit.process == settings_.process.number) rate = limit.bytes_per_second;
    }
    settings_.pace->set_total(rate, {command.spared.begin(), command.spared.end()});
    return ok();
  }

  Status report_forming() {
    for (const HostReport& report : forming_.take_reports()) {
      if (const Status fault = link_.report(report); !fault.ok()) return fault;
    }
    return ok();
  }

  // Notes when the part that lives here got its work.
  void note_work() {
    for (const auto& [id, part] : process_.parts()) {
      if (!part.work() || part.work()->serial == assigned_) continue;
      assigned_ = part.work()->serial;
      assigned_at_ = monotonic_clock().now();
    }
  }

  // Goes on with the work of the part that lives here.
  Status train() {
    if (is_stopped_ || settings_.trainer == nullptr) return ok();
    PartTrainer& trainer = *settings_.trainer;
    due_ = kNever;
    while (auto validated = trainer.take_validated()) {
      validated->replica = settings_.process.replica;
      if (!settings_.reports_iterations) continue;
      if (const Status fault = link_.report(*validated); !fault.ok()) return fault;
    }
    for (const auto& [id, part] : process_.parts()) {
      if (!part.is_ready() || !forming_.may_begin(*part.work())) continue;
      const int64_t serial = part.work()->serial;
      if (serial != serial_) {
        fetched_ = monotonic_clock().now() - assigned_at_;
        const Status fault = trainer.begin(*part.work(), part.parameters(), run_begun_);
        if (!fault.ok()) return fault;
        serial_ = serial;
      }
      auto computed = trainer.advance(monotonic_clock().now());
      if (!computed) {
        due_ = trainer.due();
        return ok();
      }
      MeasuredIteration iteration{settings_.process.replica, computed->time, computed->share,
                                  computed->loss};
      iteration.processor = computed->processor;
      if (const Status fault = measure(iteration, computed->transfer_is_given); !fault.ok()) {
        return fault;
      }
      return process_.offer(id, serial, std::move(computed->gradients));
    }
    return ok();
  }

  // Reports the iteration whose gradient is about to be offered, now or when it has left.
  Status measure(const MeasuredIteration& iteration, bool transfer_is_given) {
    if (!settings_.reports_iterations) return ok();
    if (transfer_is_given) return link_.report(MeasuredReport{iteration});
    const Duration now = monotonic_clock().now();
    // The gradient before was dropped as stale while it was on its way.
    if (leaving_) {
      if (const Status fault = end_leaving(now); !fault.ok()) return fault;
    }
    leaving_ = Leaving{iteration, now};
    leaving_->iteration.time.transfer = leaving_->iteration.receive = fetched_;
    return ok();
  }

  // The gradient has left at this moment.
  Status end_leaving(Duration moment) {
    MeasuredIteration iteration = leaving_->iteration;
    iteration.time.transfer += std::max(moment - leaving_->offered, Duration{});
    leaving_.reset();
    return link_.report(MeasuredReport{iteration});
  }

  // Says what has left, what is committed, and what was written down.
  Status report_what_is_done() {
    if (leaving_ && net_.unsent() == Bytes{}) {
      if (const Status fault = end_leaving(net_.emptied()); !fault.ok()) return fault;
    }
    if (auto committed = process_.take_committed()) {
      choice_.add(*committed);
      committed->kappa = choice_.learned_kappa();
      if (const Status fault = link_.report(*committed); !fault.ok()) return fault;
    }
    return write_states(false);
  }

  // Says what was sent, if the job shares its host.
  Status report_traffic() {
    const Duration now = monotonic_clock().now();
    if (!settings_.choice.asks || now < traffic_at_) return ok();
    traffic_at_ = now + kTrafficEvery;
    TrafficReport report;
    for (const auto& [process, bytes] : net_.take_sent()) report.sent.push_back({process, bytes});
    return report.sent.empty() ? ok() : link_.report(report);
  }

  Status write_states(bool all_committed) {
    for (const PeerProcess::Saved& one : process_.take_saved(all_committed)) {
      if (!settings_.save_state) continue;
      auto files = settings_.save_state(one.range, one.state);
      if (!files.ok()) return files.error();
      SavedReport saved{one.range, one.state.version, one.state.mass, std::move(files).value(),
                        one.state.tally};
      saved.has_record = one.state.record.has_value();
      if (one.state.record) saved.decided = balance_of(*one.state.record);
      if (const Status fault = link_.report(saved); !fault.ok()) return fault;
    }
    return ok();
  }

  // Lets the choice of the mode decide, if the decider lives here.
  Status choose() {
    const Decider* decider = process_.decider();
    if (finishes_ || decider == nullptr || !decider->is_ready()) return ok();
    if (const auto apply = process_.apply_time()) choice_.set_apply(*apply);
    const auto choice = choice_.next(decider->record().mode, monotonic_clock().now());
    if (!choice.ok()) return choice.error();
    if (const auto question = choice_.take_question()) return link_.report(*question);
    if (!choice.value()) return ok();
    const SyncMode& mode = choice.value()->mode;
    // Offers that wait may make an update in the new mode at once.
    const Version before = decider->record().version;
    if (const Status fault = process_.change(mode); !fault.ok()) return fault;
    return link_.report(
        ModeReport{mode, choice.value()->reason, before, best_alternatives(*choice.value())});
  }

  // The host lets keepers finish when the decider has committed all, so all versions are committed.
  Status finish() {
    if (const Status fault = write_states(true); !fault.ok()) return fault;
    const Decider* decider = process_.decider();
    if (decider != nullptr && settings_.peers.write_down) {
      settings_.peers.write_down(to_text(decider->record()));
    }
    for (const auto& [id, keeper] : process_.keepers()) {
      // One that came after the decider had finished was never filled, and has nothing.
      if (!keeper.is_filled()) continue;
      if (settings_.save) {
        if (const Status fault = settings_.save(id, keeper); !fault.ok()) return fault;
      }
      const Status fault =
          link_.report(StateReport{id, keeper.version(), keeper.is_filled(), keeper.tally()});
      if (!fault.ok()) return fault;
    }
    is_finished_ = true;
    FinishedReport finished;
    finished.has_decider = decider != nullptr;
    if (decider != nullptr) {
      finished.decided = balance_of(decider->record());
      finished.save = decider->record().save;
    }
    return link_.report(finished);
  }

  PeerNet& net_;
  HostLink& link_;
  PeerProcess process_;
  ModeChoice choice_;
  FormingPart forming_;
  HostSettings settings_;
  Duration run_begun_{};
  Duration traffic_at_{};               // when it is said what was sent
  Duration due_ = kNever;               // when the iteration of the part goes on
  int64_t serial_ = -1;                 // of the work that the trainer has begun
  int64_t assigned_ = -1;               // serial of the work that the part got last
  Duration assigned_at_{}, fetched_{};  // when it got it; until its parameters were here
  // An iteration whose gradient was offered, and may not have left.
  struct Leaving {
    MeasuredIteration iteration;
    Duration offered{};
  };
  std::optional<Leaving> leaving_;
  bool is_stopped_ = false, finishes_ = false, is_finished_ = false;
  Version save_{};  // of the command to finish
};

// Connects to those that were started before.
Status open(Transport& transport, Mailbox& mailbox, HostLink& link, const RunProcess& process) {
  const WorkerId self = process.number;
  const Status told =
      link.report(ListeningReport{transport.address().text, host_name(), process.port});
  if (!told.ok()) return told;
  const auto first = link.next(kFirstCommand);
  if (!first.ok()) return first.error();
  if (!first.value()) {
    return Error{Code::Timeout, Reach::Call,
                 cat("process ", self, " has got no command: expected one to connect")};
  }
  const auto* command = std::get_if<ConnectCommand>(&*first.value());
  if (command == nullptr) {
    return invalid(cat("process ", self, " expected a command to connect, found another one"));
  }
  return connect(transport, mailbox, command->processes, kConnectLimit);
}

}  // namespace

Status run_host(Transport& transport, Mailbox& mailbox, HostLink& link, HostSettings settings) {
  const WorkerId self = settings.process.number;
  settings.peers.self = self;
  if (const Status fault = open(transport, mailbox, link, settings.process); !fault.ok()) {
    return fault;
  }
  PeerNet net(transport, mailbox, self);
  HostLoop loop(net, link, std::move(settings));
  if (const Status fault = link.report(ConnectedReport{}); !fault.ok()) return fault;
  return loop.serve();
}

}  // namespace tenuto::servers
