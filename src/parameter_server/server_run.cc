#include "parameter_server/server_run.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/text.h"
#include "sync/ledger.h"
#include "transport/bytes.h"

namespace tenuto::servers {

namespace {

Error broken(std::string sentence) { return {Code::Corrupt, Reach::Job, std::move(sentence)}; }

bool is_part(const HostedProcess& one) { return one.process.kind == ProcessKind::Part; }

}  // namespace

ServerRun::ServerRun(Roster roster) : roster_(std::move(roster)) {}

bool ServerRun::is_known(WorkerId process) const {
  return process.value >= 0 && process.value < std::ssize(processes_);
}

template <class Is>
bool ServerRun::all_living(Is is_so) const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [&](const HostedProcess& one) { return !one.lives() || is_so(one); });
}

bool ServerRun::all_connected() const {
  return all_living([](const HostedProcess& one) { return one.is_connected; });
}

void ServerRun::tell(WorkerId process, HostCommand command) {
  if (at(process).lives()) commands_.push_back({process, std::move(command)});
}

std::vector<ServerRun::Task> ServerRun::take_commands() { return std::exchange(commands_, {}); }

// ---- who is there ----------------------------------------------------------------------------

WorkerId ServerRun::start(RunProcess process) {
  process.number.value = static_cast<int32_t>(processes_.size());
  processes_.emplace_back();
  processes_.back().process = process;
  connections_.add(process.number);
  return process.number;
}

void ServerRun::connect_those_that_can() {
  for (Connections::Task& task : connections_.take_tasks()) {
    tell(task.process, std::move(task.command));
  }
}

void ServerRun::form_those_that_can() {
  for (Formations::Task& task : formations_.take_tasks()) {
    tell(task.process, std::move(task.command));
  }
}

Status ServerRun::begin(Duration moment) {
  if (begun_ || !all_connected()) {
    return invalid("a run with server shards begins once, when all its processes are connected");
  }
  begun_ = moment;
  for (HostedProcess& one : processes_) {
    if (!one.lives()) continue;
    if (const Status fault = roster_.join(one.process); !fault.ok()) return fault;
    tell(one.process.number, BeginCommand{moment});
    if (lease_) tell(one.process.number, *lease_);
  }
  return announce();
}

Status ServerRun::join(HostedProcess& process) {
  if (const Status fault = roster_.join(process.process); !fault.ok()) return fault;
  const WorkerId number = process.process.number;
  tell(number, BeginCommand{*begun_});
  if (lease_) tell(number, *lease_);
  const int64_t before = newest().members.epoch;
  if (const Status fault = announce(); !fault.ok()) return fault;
  // Nothing is installed before it has placed the newest members, so it has to get them even if it
  // changes none of them.
  if (newest().members.epoch == before) tell(number, MembersCommand{newest()});
  // It was not told before, because its first command is the one to connect.
  if (ending_ != Ending::No && is_part(process)) tell(number, StopCommand{});
  if (ending_ >= Ending::Finishes && finishes(process)) tell(number, FinishCommand{save_});
  return ok();
}

void ServerRun::give_up(WorkerId process) {
  if (!is_known(process)) return;
  at(process).is_given_up = true;
  connections_.lose(process);
}

Status ServerRun::lose(WorkerId process) {
  if (!is_known(process) || at(process).has_ended) return ok();
  at(process).has_ended = true;
  roster_.lose(process);
  connections_.lose(process);
  // The command to connect is always the first one, and it will not name this process.
  for (const HostedProcess& other : processes_) {
    const WorkerId number = other.process.number;
    if (connections_.was_told(number)) tell(number, LostCommand{process});
  }
  connect_those_that_can();
  if (!begun_) return ok();
  if (const Status fault = announce(); !fault.ok()) return fault;
  install_if_placed();
  go_on_ending();
  return ok();
}

// ---- members ---------------------------------------------------------------------------------

// Brings the members to all processes, if there are new ones.
Status ServerRun::announce() {
  const auto next = roster_.next();
  if (!next.ok()) return next.error();
  if (!next.value()) return ok();
  formations_.set_members(*next.value());
  for (const HostedProcess& one : processes_) {
    if (one.is_connected) tell(one.process.number, MembersCommand{*next.value()});
  }
  return ok();
}

// The decider begins the newest epoch when all know its members.
void ServerRun::install_if_placed() {
  const int64_t epoch = newest().members.epoch;
  const auto has_placed = [&](const HostedProcess& one) {
    return !one.is_connected || one.placed == epoch;
  };
  if (is_installed() || !all_living(has_placed)) return;
  tell(decider(), InstallCommand{});
  // The decider may live in another process than before.
  if (wanted_) tell(decider(), ModeCommand{wanted_});
  if (wants_save_) tell(decider(), SaveCommand{});
  installed_ = epoch;
}

// ---- what they say ---------------------------------------------------------------------------

Status ServerRun::handle(WorkerId from, const HostReport& report) {
  if (!is_known(from)) {
    return broken(cat("process ", from, " was never started, and says something"));
  }
  return std::visit([&](const auto& one) { return take(at(from), one); }, report);
}

Status ServerRun::take(HostedProcess& from, const ListeningReport& report) {
  from.process.host = printable(report.host);
  from.process.port = std::clamp<int64_t>(report.port, 0, kMostHostAmount);
  from.address = report.address;
  connections_.set_address(from.process.number, report.address);
  connect_those_that_can();
  return ok();
}

Status ServerRun::take(HostedProcess& from, const ConnectedReport&) {
  from.is_connected = true;
  return begun_ ? join(from) : ok();
}

Status ServerRun::take(HostedProcess& from, const PlacedReport& report) {
  from.placed = report.epoch;
  install_if_placed();
  go_on_ending();
  return ok();
}

Status ServerRun::take(HostedProcess& from, const MeasuredReport& report) {
  ++from.iterations;
  measured_.push_back(report.iteration);
  if (installed_ > 0) tell(decider(), MeasuredCommand{report.iteration});
  return ok();
}

Status ServerRun::take(HostedProcess&, const ModeReport& report) {
  ++changes_;
  modes_.push_back(report);
  return follow_mode(report.mode);
}

Status ServerRun::take(HostedProcess& from, const StoppedReport&) {
  from.has_stopped = true;
  go_on_ending();
  return ok();
}

Status ServerRun::take(HostedProcess&, const StateReport& report) {
  states_[report.keeper] = report.version;
  if (report.is_filled) tallies_[report.keeper] = report.tally;
  return ok();
}

Status ServerRun::take(HostedProcess& from, const FinishedReport& report) {
  from.has_finished = true;
  // A decider that is lost after it has finished may have a successor.
  if (report.has_decider) {
    decided_ = report.decided;
    save_ = report.save;
  }
  go_on_ending();
  return ok();
}

// At the end processes that have finished may leave.
Status ServerRun::take(HostedProcess& from, const LostReport& report) {
  const bool is_over = ending_ >= Ending::Finishes;
  if (is_over || !is_known(report.process) || !at(report.process).lives()) return ok();
  return broken(cat("process ", from.process.number, " has lost process ", report.process,
                    ", which was not killed"));
}

Status ServerRun::take(HostedProcess& from, const FailedReport& report) {
  if (from.is_given_up) return ok();
  return broken(cat("process ", from.process.number, " says: ", printable(report.why)));
}

// A decider that was replaced may have said less, and be heard later. What it says of an epoch
// stays true. A report of the same version has no works of its own: those that were said stay.
Status ServerRun::take(HostedProcess&, const CommittedReport& report) {
  const int64_t filled = std::max(committed_.filled, report.filled);
  const bool has_filled = filled > committed_.filled;
  if (report.version > committed_.version) committed_ = report;
  committed_.filled = filled;
  if (report.version == committed_.version) {
    committed_.mode = report.mode;
    if (const Status fault = follow_mode(report.mode); !fault.ok()) return fault;
  }
  if (!has_filled || !roster_.kept_by_parts() || !begun_) return ok();
  roster_.note_filled(filled);
  return announce();
}

Status ServerRun::take(HostedProcess&, const SavedReport& report) {
  wants_save_ = false;
  saved_.push_back(report);
  return ok();
}

Status ServerRun::take(HostedProcess&, const ValidatedReport& report) {
  validated_.push_back(report);
  return ok();
}

Status ServerRun::take(HostedProcess& from, const FormingReport& report) {
  formations_.set_address(from.process.number, report);
  form_those_that_can();
  return ok();
}

std::vector<KeptTally> ServerRun::tallies() const {
  std::vector<KeptTally> all;
  for (const auto& [keeper, tally] : tallies_) {
    all.push_back({cat("keeper ", keeper), states_.at(keeper), tally});
  }
  return all;
}

Status ServerRun::take(HostedProcess&, const AskReport& report) {
  questions_.push_back(report);
  return ok();
}

Status ServerRun::take(HostedProcess& from, const TrafficReport& report) {
  for (const SentBytes& one : report.sent) {
    if (is_known(one.to) && one.bytes > 0) sent_.emplace_back(from.process.number, one);
  }
  return ok();
}

std::vector<std::pair<WorkerId, SentBytes>> ServerRun::take_sent() {
  return std::exchange(sent_, {});
}

std::vector<AskReport> ServerRun::take_questions() { return std::exchange(questions_, {}); }

std::vector<SavedReport> ServerRun::take_saved() { return std::exchange(saved_, {}); }

std::vector<ModeReport> ServerRun::take_modes() { return std::exchange(modes_, {}); }

std::vector<MeasuredIteration> ServerRun::take_measured() { return std::exchange(measured_, {}); }

std::vector<ValidatedReport> ServerRun::take_validated() { return std::exchange(validated_, {}); }

// ---- the mode, and the end -------------------------------------------------------------------

// The replicas of the ring keep the parameters.
Status ServerRun::follow_mode(const SyncMode& mode) {
  if (!roster_.kept_by_parts() || !begun_ || mode == mode_) return ok();
  mode_ = mode;
  roster_.set_ring(ring_of(mode));
  return announce();
}

bool ServerRun::finishes(const HostedProcess& one) const {
  return !is_part(one) || roster_.kept_by_parts();
}

void ServerRun::want(const std::optional<SyncMode>& mode) {
  wanted_ = mode;
  if (installed_ > 0) tell(decider(), ModeCommand{mode});
}

// A process that is not connected yet is told when it begins.
void ServerRun::lease(const LeaseCommand& command) {
  if (lease_ == command) return;
  lease_ = command;
  for (const HostedProcess& one : processes_) {
    if (begun_ && one.is_connected) tell(one.process.number, command);
  }
}

void ServerRun::save() {
  wants_save_ = true;
  if (installed_ > 0 && is_installed()) tell(decider(), SaveCommand{});
}

void ServerRun::stop() {
  if (newest().members.epoch == 0 || ending_ != Ending::No) return;
  ending_ = Ending::Stops;
  roster_.end_handovers();
  for (const HostedProcess& one : processes_) {
    if (is_part(one) && one.is_connected) tell(one.process.number, StopCommand{});
  }
  go_on_ending();
}

void ServerRun::go_on_ending() {
  if (ending_ == Ending::Stops && all_living([](const HostedProcess& one) {
        return !is_part(one) || !one.is_connected || one.has_stopped;
      })) {
    ending_ = Ending::Decides;
  }
  // A handover that was announced goes on first: the decider has to take part in it.
  const bool is_moving = roster_.kept_by_parts() && !is_installed();
  if (ending_ == Ending::Decides && !is_moving) {
    const WorkerId now = decider();
    if (finishing_ != now) tell(now, FinishCommand{});
    finishing_ = now;
    if (at(now).has_finished) {
      ending_ = Ending::Finishes;
      for (const HostedProcess& one : processes_) {
        if (finishes(one) && one.is_connected && one.process.number != now) {
          tell(one.process.number, FinishCommand{save_});
        }
      }
    }
  }
  if (ending_ == Ending::Finishes && all_living([&](const HostedProcess& one) {
        return !finishes(one) || !one.is_connected || one.has_finished;
      })) {
    ending_ = Ending::Over;
  }
}

}  // namespace tenuto::servers
