#include "bench/sync_run.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text.h"
#include "bench/line_process.h"
#include "bench/runs.h"
#include "bench/sync_peer.h"
#include "parameter_server/account.h"
#include "parameter_server/message_bytes.h"
#include "parameter_server/server_run.h"
#include "sync/chooser.h"
#include "sync/formed.h"
#include "sync/trial_model.h"
#include "transport/tcp/secret.h"

namespace tenuto {

namespace {

using namespace servers;

// How long anything may take that processes are asked for, and how long a killed one is away.
constexpr Duration kAnswer = std::chrono::seconds(60);
constexpr Duration kAway = std::chrono::seconds(2);
constexpr int32_t kMostServers = 8;

constexpr std::array<std::string_view, 4> kKinds = {"shard", "standby", "replica", "decider"};

Error broken(std::string sentence) { return {Code::Corrupt, Reach::Job, std::move(sentence)}; }

std::string new_token() {
  std::array<std::byte, 16> bytes{};
  tcp::fill_random(bytes);
  std::string token;
  for (const std::byte one : bytes) token += cat(static_cast<int>(one), ".");
  return token;
}

Status check_setting(const SyncRunSetting& setting) {
  const TrialSetting& trial = setting.trial;
  const bool is_fixed = trial.policy == SyncPolicy::Fixed;
  if ((!is_fixed && trial.policy != SyncPolicy::LookAhead) || trial.method != MethodKind::Plain ||
      trial.mode.local_steps != 1 || trial.clip != 0) {
    return invalid("processes run fixed modes without local steps and clipping, or look-ahead");
  }
  if (setting.servers < 2 || setting.servers > kMostServers) {
    return invalid(
        cat("a run over processes needs 2 to ", kMostServers, " servers, found ", setting.servers));
  }
  for (const ProcessKill& kill : setting.kills) {
    if (kill.at.count() >= 0 && kill.at < trial.limit) continue;
    return invalid(cat("a kill after ", to_milliseconds(kill.at) / 1000, " s in a run of ",
                       to_milliseconds(trial.limit) / 1000, " s: expected an earlier one"));
  }
  return ok();
}

// The mode with which the run begins.
Result<SyncMode> first_mode_of(const TrialSetting& trial) {
  if (trial.policy == SyncPolicy::Fixed) {
    return form(trial.mode, mean_times(trial.scenario, trial.seed), trial.batch);
  }
  const std::vector<IterationTime> equal(static_cast<size_t>(trial.scenario.replicas),
                                         trial.scenario.base);
  return look_ahead_chooser()->first(equal, trial.kappa);
}

// ---- the processes ---------------------------------------------------------------------------

class SyncRun {
 public:
  SyncRun(const SyncRunSetting& setting, const SyncMode& mode, Roster roster)
      : setting_(setting), run_(std::move(roster)), kills_(setting.kills) {
    const TrialSetting& trial = setting.trial;
    told_.scenario = trial.scenario;
    told_.mode = to_text(mode);
    told_.chooses = trial.policy == SyncPolicy::LookAhead;
    told_.seed = trial.seed;
    told_.batch = trial.batch;
    told_.optimizer = to_text(trial.scenario.optimizer);
    told_.rate = trial.rate.value_or(usual_rate(trial.scenario.optimizer));
    told_.kappa = trial.kappa;
    told_.learns_kappa = trial.learns_kappa;
    told_.ranges = setting.servers;
    told_.folder = folder_.path().string();
    told_.token = new_token();
    std::sort(kills_.begin(), kills_.end(),
              [](const ProcessKill& left, const ProcessKill& right) { return left.at < right.at; });
  }

  SyncRun(const SyncRun&) = delete;
  SyncRun& operator=(const SyncRun&) = delete;
  // Nothing is left to say for those that live.
  ~SyncRun() {
    for (const auto& program : programs_) program->kill();
  }

  Result<SyncRunResult> run() {
    for (int32_t i = 0; i < setting_.servers; ++i) start({{}, ProcessKind::Server, {}, {}});
    start({{}, ProcessKind::Decider, {}, {}});
    for (int32_t i = 0; i < setting_.trial.scenario.replicas; ++i) {
      start({{}, ProcessKind::Part, {i}, {0}});
    }
    if (const Status fault = begin(); !fault.ok()) return fault.error();
    if (const Status fault = play(); !fault.ok()) return fault.error();
    if (const Status fault = finish(); !fault.ok()) return fault.error();
    return result();
  }

 private:
  void start(RunProcess process);
  Status begin();
  Status play();
  Status finish();
  Result<SyncRunResult> result() const;
  Status compare_keepers(std::vector<float>& parameters) const;
  Status kill_now(ProcessKill::Kind kind);
  Status look(Duration until);
  Status wait_for(const std::string& what, const std::function<bool()>& is_so);
  Status take(const HostedProcess& from, const std::string& line);
  Status take_end(const HostedProcess& from);
  void send_commands();
  const HostedProcess& process_of(PeerId peer) const {
    return run_.processes()[static_cast<size_t>(run_.newest().places.at(peer).value)];
  }
  LineProcess& program_of(WorkerId process) {
    return *programs_[static_cast<size_t>(process.value)];
  }

  const SyncRunSetting& setting_;
  ServerRun run_;
  std::vector<ProcessKill> kills_;  // to come, by time
  struct Return {
    Duration at{};
    RunProcess process;
  };
  std::vector<Return> returns_;  // to come, by time
  WorkFolder folder_;
  SyncPeerSettings told_;
  std::vector<std::unique_ptr<LineProcess>> programs_;  // by the number of the process
  Duration begun_{};
};

void SyncRun::start(RunProcess process) {
  process.number = run_.start(process);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  programs_.push_back(std::make_unique<LineProcess>(std::vector<std::string>{program, "--peer"}));
  told_.process = process;
  programs_.back()->write(to_text(told_));
}

void SyncRun::send_commands() {
  for (const ServerRun::Task& task : run_.take_commands()) {
    program_of(task.process).write(to_line(encode_command(task.command)));
  }
}

// ---- what they say ---------------------------------------------------------------------------

// Takes what processes say until this moment, or until something was said.
Status SyncRun::look(Duration until) {
  std::vector<pollfd> waits;
  for (const HostedProcess& one : run_.processes()) {
    if (one.has_ended) continue;
    waits.push_back({program_of(one.process.number).output().descriptor(), POLLIN, 0});
  }
  constexpr double kMost = 1000;
  const double wait = to_milliseconds(until - monotonic_clock().now());
  poll(waits.data(), waits.size(), static_cast<int>(std::clamp(wait, 0.0, kMost)) + 1);
  for (const HostedProcess& one : run_.processes()) {
    if (one.has_ended) continue;
    LineReader& output = program_of(one.process.number).output();
    while (const auto line = output.next(0)) {
      if (const Status fault = take(one, *line); !fault.ok()) return fault;
    }
    if (!output.has_ended()) continue;
    if (const Status fault = take_end(one); !fault.ok()) return fault;
  }
  return ok();
}

Status SyncRun::wait_for(const std::string& what, const std::function<bool()>& is_so) {
  const Duration end = monotonic_clock().now() + kAnswer;
  while (!is_so()) {
    if (monotonic_clock().now() > end) {
      return broken(cat("the processes of a run did not answer in time: expected ", what));
    }
    if (const Status fault = look(end); !fault.ok()) return fault;
  }
  return ok();
}

Status SyncRun::take(const HostedProcess& from, const std::string& line) {
  const auto report = decode_report(from_line(line));
  if (!report.ok()) {
    if (from.is_given_up) return ok();
    return broken(
        cat("process ", from.process.number, " says '", line, "': ", report.error().message));
  }
  const Status handled = run_.handle(from.process.number, report.value());
  send_commands();
  return handled;
}

Status SyncRun::take_end(const HostedProcess& from) {
  if (!from.is_given_up) {
    return broken(cat("process ", from.process.number, " has ended: expected it to go on"));
  }
  const Status fault = run_.lose(from.process.number);
  send_commands();
  return fault;
}

// ---- the course of the run -------------------------------------------------------------------

// All are there before the first members are made.
Status SyncRun::begin() {
  const auto are_ready = [&] { return run_.all_connected(); };
  if (const Status fault = wait_for("all to be connected", are_ready); !fault.ok()) return fault;
  begun_ = monotonic_clock().now();
  const Status fault = run_.begin(begun_);
  send_commands();
  return fault;
}

Status SyncRun::kill_now(ProcessKill::Kind kind) {
  const Membership& members = run_.newest().members;
  const std::vector<PeerId>& keepers = members.ranges.front().keepers;
  const std::vector<PeerId>& parts = members.replicas.back();
  std::vector<PeerId> targets;
  if (kind == ProcessKill::Kind::Decider) targets = {members.decider};
  if (kind == ProcessKill::Kind::Shard) targets = {keepers.front()};
  if (kind == ProcessKill::Kind::Standby && keepers.size() > 1) targets = {keepers.back()};
  if (kind == ProcessKill::Kind::Replica) targets = parts;
  if (targets.empty() || !process_of(targets.front()).lives()) {
    return invalid(cat("no process is a ", kKinds[static_cast<size_t>(kind)],
                       " that could be killed: kill it later or another one"));
  }
  const RunProcess process = process_of(targets.front()).process;
  run_.give_up(process.number);
  program_of(process.number).kill();
  returns_.push_back({monotonic_clock().now() + kAway, process});
  return ok();
}

// Until the end of the measurement, and until all that were killed are back and every replica has
// begun again with newer parameters.
Status SyncRun::play() {
  const Duration end = begun_ + setting_.trial.limit;
  while (true) {
    const Duration now = monotonic_clock().now();
    if (!kills_.empty() && now >= begun_ + kills_.front().at) {
      const ProcessKill kill = kills_.front();
      kills_.erase(kills_.begin());
      if (const Status fault = kill_now(kill.kind); !fault.ok()) return fault;
      continue;
    }
    if (!returns_.empty() && now >= returns_.front().at) {
      start(returns_.front().process);
      returns_.erase(returns_.begin());
      continue;
    }
    if (now >= end && returns_.empty()) break;
    Duration until = now < end ? end : returns_.front().at;
    if (!kills_.empty()) until = std::min(until, begun_ + kills_.front().at);
    if (!returns_.empty()) until = std::min(until, returns_.front().at);
    if (const Status fault = look(until); !fault.ok()) return fault;
  }
  return wait_for("two iterations of each replica, and those who were killed to be back", [&] {
    const std::vector<HostedProcess>& all = run_.processes();
    const bool are_here = std::all_of(all.begin(), all.end(), [](const HostedProcess& one) {
      if (!one.lives()) return one.has_ended;
      const bool is_part = one.process.kind == ProcessKind::Part;
      return one.is_connected && (!is_part || one.iterations >= 2);
    });
    return are_here && run_.is_installed();
  });
}

// Replicas stop first. When the decider has nothing more to do, nothing more comes to the keepers.
Status SyncRun::finish() {
  run_.stop();
  send_commands();
  const auto have_stopped = [&] { return run_.have_replicas_stopped(); };
  if (const Status fault = wait_for("replicas to stop", have_stopped); !fault.ok()) return fault;
  const auto has_decided = [&] { return run_.has_decider_finished(); };
  const Status fault = wait_for("the decider to commit all updates", has_decided);
  if (!fault.ok()) return fault;
  const auto have_finished = [&] { return run_.has_finished(); };
  return wait_for("servers to write what they have", have_finished);
}

// ---- what came of it -------------------------------------------------------------------------

// All keepers of a range have the same bits. Gives the parameters.
Status SyncRun::compare_keepers(std::vector<float>& parameters) const {
  const auto text_of = [&](const char* kind, PeerId keeper) {
    return read_all(folder_.path() / cat(kind, "-", keeper));
  };
  const Membership& members = run_.newest().members;
  const std::map<PeerId, Version>& states = run_.states();
  for (size_t i = 0; i < members.ranges.size(); ++i) {
    const std::vector<PeerId>& keepers = members.ranges[i].keepers;
    for (const PeerId keeper : keepers) {
      if (states.count(keeper) == 0) return broken(cat("keeper ", keeper, " wrote no state"));
      if (states.at(keeper) != states.at(keepers.front()) ||
          text_of("state", keeper) != text_of("state", keepers.front())) {
        return broken(cat("audit: keepers ", keepers.front(), " and ", keeper, " of range ", i,
                          " have different bits, at versions ", states.at(keepers.front()).value,
                          " and ", states.at(keeper).value));
      }
    }
    const std::string bytes = text_of("parameters", keepers.front());
    const size_t before = parameters.size();
    parameters.resize(before + bytes.size() / sizeof(float));
    std::memcpy(parameters.data() + before, bytes.data(), bytes.size());
  }
  return ok();
}

Result<SyncRunResult> SyncRun::result() const {
  RunAccount account;
  for (const HostedProcess& one : run_.processes()) {
    const std::string path = told_.folder + cat("/process-", one.process.number, ".log");
    const auto text = read_file(path);
    if (!text.ok()) return text.error();
    if (const Status fault = add_lines(text.value(), account); !fault.ok()) return fault.error();
  }
  const auto updates = audit(account);
  if (!updates.ok()) return updates.error();
  std::vector<float> parameters;
  if (const Status fault = compare_keepers(parameters); !fault.ok()) return fault.error();
  for (const auto& [keeper, version] : run_.states()) {
    if (version.value == std::ssize(updates.value())) continue;
    return broken(cat("audit: keeper ", keeper, " is at version ", version.value, " after ",
                      updates.value().size(), " updates"));
  }
  const Status same = check_tallies(run_.tallies(), run_.decided());
  if (!same.ok()) return same.error();
  SyncRunResult result;
  result.measure =
      measure_updates(updates.value(), begun_ + setting_.trial.limit, {setting_.trial.batch});
  result.changes = run_.changes();
  result.accuracy =
      TrialModel(setting_.trial.seed, setting_.trial.scenario.replicas).accuracy(parameters);
  result.updates = std::ssize(updates.value());
  result.epochs = run_.newest().members.epoch;
  return result;
}

}  // namespace

Result<ProcessKill> process_kill_from_text(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const auto kind = std::find(kKinds.begin(), kKinds.end(), text.substr(0, colon));
  const auto seconds =
      number_in<double>(std::string_view(text).substr(std::min(colon + 1, text.size())));
  if (kind == kKinds.end() || !seconds || !(*seconds >= 0)) {
    return invalid(
        cat("expected shard, standby, replica or decider, and :SECONDS, found '", text, "'"));
  }
  return ProcessKill{static_cast<ProcessKill::Kind>(kind - kKinds.begin()),
                     from_milliseconds(1000 * *seconds)};
}

Result<SyncRunResult> run_sync_processes(const SyncRunSetting& setting) {
  if (const Status fault = check_setting(setting); !fault.ok()) return fault.error();
  const auto mode = first_mode_of(setting.trial);
  if (!mode.ok()) return mode.error();
  auto roster = Roster::make({ranges_of_trial(setting.servers), setting.trial.scenario.replicas});
  if (!roster.ok()) return roster.error();
  return SyncRun(setting, mode.value(), std::move(roster).value()).run();
}

}  // namespace tenuto
