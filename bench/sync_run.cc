#include "bench/sync_run.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text.h"
#include "bench/line_process.h"
#include "bench/runs.h"
#include "bench/sync_peer.h"
#include "parameter_server/account.h"
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
  return look_ahead_chooser()->first(equal);
}

// ---- the processes ---------------------------------------------------------------------------

// A process that was started.
struct Child {
  RunProcess process;
  std::unique_ptr<LineProcess> program;
  std::string address;
  bool connects = false, is_ready = false, is_killed = false, has_ended = false;
  bool has_stopped = false, has_finished = false;
  int64_t placed = 0;      // epoch
  int64_t iterations = 0;  // of a replica
  bool lives() const { return !is_killed && !has_ended; }
};

class SyncRun {
 public:
  SyncRun(const SyncRunSetting& setting, const SyncMode& mode, Roster roster)
      : setting_(setting), roster_(std::move(roster)), kills_(setting.kills) {
    const TrialSetting& trial = setting.trial;
    told_.scenario = trial.scenario.name;
    told_.mode = to_text(mode);
    told_.chooses = trial.policy == SyncPolicy::LookAhead;
    told_.seed = trial.seed;
    told_.batch = trial.batch;
    told_.optimizer = to_text(trial.scenario.optimizer);
    told_.rate = trial.rate.value_or(usual_rate(trial.scenario.optimizer));
    told_.kappa = trial.kappa;
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
    for (Child& child : children_) child.program->kill();
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
  Status announce();
  void install_if_placed();
  Status join(Child& child);
  Status kill_now(ProcessKill::Kind kind);
  Status look(Duration until);
  Status wait_for(const std::string& what, const std::function<bool()>& is_so);
  Status take(Child& child, const std::string& line);
  Status take_end(Child& child);
  void connect_those_that_can();
  Child& child_of(PeerId peer);
  bool all(const std::function<bool(const Child&)>& is_so) const;
  bool is_installed() const { return installed_ == roster_.newest().members.epoch; }

  const SyncRunSetting& setting_;
  Roster roster_;
  std::vector<ProcessKill> kills_;  // to come, by time
  struct Return {
    Duration at{};
    RunProcess process;
  };
  std::vector<Return> returns_;  // to come, by time
  WorkFolder folder_;
  SyncPeerSettings told_;
  std::vector<Child> children_;  // by number
  bool has_begun_ = false, is_over_ = false;
  Duration begun_{};
  int64_t installed_ = 0, changes_ = 0;
  std::map<PeerId, int64_t> states_;  // the version of each keeper at the end
};

void SyncRun::start(RunProcess process) {
  process.number.value = static_cast<int32_t>(children_.size());
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  children_.emplace_back();
  Child& child = children_.back();
  child.process = process;
  child.program = std::make_unique<LineProcess>(std::vector<std::string>{program, "--peer"});
  told_.process = process;
  child.program->write(to_text(told_));
}

// A process connects to all that were started before it, once their addresses are known.
void SyncRun::connect_those_that_can() {
  std::string line = "connect";
  for (Child& child : children_) {
    if (!child.lives()) continue;
    if (child.address.empty()) return;
    if (!child.connects) {
      child.program->write(line);
      child.connects = true;
    }
    line += cat(" ", child.process.number, " ", child.address);
  }
}

bool SyncRun::all(const std::function<bool(const Child&)>& is_so) const {
  return std::all_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return !child.lives() || is_so(child); });
}

Child& SyncRun::child_of(PeerId peer) {
  return children_[static_cast<size_t>(roster_.newest().places.at(peer).value)];
}

// ---- what they say ---------------------------------------------------------------------------

// Takes what processes say until this moment, or until something was said.
Status SyncRun::look(Duration until) {
  std::vector<pollfd> waits;
  for (const Child& child : children_) {
    if (!child.has_ended) waits.push_back({child.program->output().descriptor(), POLLIN, 0});
  }
  constexpr double kMost = 1000;
  const double wait = to_milliseconds(until - monotonic_clock().now());
  poll(waits.data(), waits.size(), static_cast<int>(std::clamp(wait, 0.0, kMost)) + 1);
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (child.has_ended) continue;
    while (const auto line = child.program->output().next(0)) {
      if (const Status fault = take(child, *line); !fault.ok()) return fault;
    }
    if (!child.program->output().has_ended()) continue;
    if (const Status fault = take_end(child); !fault.ok()) return fault;
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

Status SyncRun::take(Child& child, const std::string& line) {
  std::istringstream words(line);
  std::string kind, word;
  words >> kind;
  if (kind == "address") {
    words >> child.address;
    connect_those_that_can();
  } else if (kind == "ready") {
    child.is_ready = true;
    if (has_begun_) return join(child);
  } else if (kind == "placed") {
    words >> child.placed;
    install_if_placed();
  } else if (kind == "sample") {
    ++child.iterations;
    if (installed_ > 0) child_of(roster_.newest().members.decider).program->write(line);
  } else if (kind == "changed") {
    ++changes_;
  } else if (kind == "stopped") {
    child.has_stopped = true;
  } else if (kind == "state") {
    PeerId keeper;
    words >> keeper.value;
    words >> states_[keeper];
  } else if (kind == "finished") {
    child.has_finished = true;
  } else if (kind == "lost") {
    size_t lost = 0;
    words >> lost;
    if (lost < children_.size() && children_[lost].lives() && !is_over_) {
      return broken(cat("process ", child.process.number, " has lost process ", lost,
                        ", which was not killed"));
    }
  } else if (!child.is_killed) {
    return broken(cat("process ", child.process.number, " says: ", line));
  }
  return ok();
}

Status SyncRun::take_end(Child& child) {
  child.has_ended = true;
  if (!child.is_killed) {
    return broken(cat("process ", child.process.number, " has ended: expected it to go on"));
  }
  roster_.lose(child.process.number);
  for (Child& other : children_) {
    if (other.lives()) other.program->write(cat("lost ", child.process.number));
  }
  connect_those_that_can();
  if (!has_begun_) return ok();
  if (const Status fault = announce(); !fault.ok()) return fault;
  install_if_placed();
  return ok();
}

// ---- the host --------------------------------------------------------------------------------

// Brings the members to all processes, if there are new ones.
Status SyncRun::announce() {
  auto next = roster_.next();
  if (!next.ok()) return next.error();
  if (!next.value()) return ok();
  const std::string line = cat("members ", to_text(*next.value()));
  for (Child& child : children_) {
    if (child.lives() && child.is_ready) child.program->write(line);
  }
  return ok();
}

// The decider begins the newest epoch when all know its members.
void SyncRun::install_if_placed() {
  const int64_t epoch = roster_.newest().members.epoch;
  const auto has_placed = [&](const Child& child) {
    return !child.is_ready || child.placed == epoch;
  };
  if (is_installed() || !all(has_placed)) return;
  child_of(roster_.newest().members.decider).program->write("install");
  installed_ = epoch;
}

Status SyncRun::join(Child& child) {
  if (const Status fault = roster_.join(child.process); !fault.ok()) return fault;
  child.program->write(cat("begin ", begun_.count()));
  return announce();
}

// All are there before the first members are made.
Status SyncRun::begin() {
  const auto are_ready = [&] { return all([](const Child& child) { return child.is_ready; }); };
  if (const Status fault = wait_for("all to be connected", are_ready); !fault.ok()) return fault;
  begun_ = monotonic_clock().now();
  has_begun_ = true;
  for (Child& child : children_) {
    if (const Status fault = roster_.join(child.process); !fault.ok()) return fault;
    child.program->write(cat("begin ", begun_.count()));
  }
  return announce();
}

Status SyncRun::kill_now(ProcessKill::Kind kind) {
  const Membership& members = roster_.newest().members;
  const std::vector<PeerId>& keepers = members.ranges.front().keepers;
  const std::vector<PeerId>& parts = members.replicas.back();
  std::vector<PeerId> targets;
  if (kind == ProcessKill::Kind::Decider) targets = {members.decider};
  if (kind == ProcessKill::Kind::Shard) targets = {keepers.front()};
  if (kind == ProcessKill::Kind::Standby && keepers.size() > 1) targets = {keepers.back()};
  if (kind == ProcessKill::Kind::Replica) targets = parts;
  if (targets.empty() || !child_of(targets.front()).lives()) {
    return invalid(cat("no process is a ", kKinds[static_cast<size_t>(kind)],
                       " that could be killed: kill it later or another one"));
  }
  Child& child = child_of(targets.front());
  child.is_killed = true;
  child.program->kill();
  returns_.push_back({monotonic_clock().now() + kAway, child.process});
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
    const bool are_here = all([](const Child& child) {
      return child.is_ready && (child.process.kind != ProcessKind::Part || child.iterations >= 2);
    });
    const bool are_lost = std::all_of(children_.begin(), children_.end(), [](const Child& child) {
      return !child.is_killed || child.has_ended;
    });
    return are_here && are_lost && is_installed();
  });
}

// Replicas stop first. When the decider has nothing more to do, nothing more comes to the keepers.
Status SyncRun::finish() {
  const auto is_part = [](const Child& child) { return child.process.kind == ProcessKind::Part; };
  for (Child& child : children_) {
    if (child.lives() && is_part(child)) child.program->write("stop");
  }
  const auto have_stopped = [&] {
    return all([&](const Child& child) { return !is_part(child) || child.has_stopped; });
  };
  if (const Status fault = wait_for("replicas to stop", have_stopped); !fault.ok()) return fault;
  Child& decider = child_of(roster_.newest().members.decider);
  decider.program->write("finish");
  const auto has_decided = [&] { return decider.has_finished; };
  if (const Status fault = wait_for("the decider to commit all updates", has_decided);
      !fault.ok()) {
    return fault;
  }
  for (Child& child : children_) {
    if (child.lives() && !is_part(child) && &child != &decider) child.program->write("finish");
  }
  const auto have_finished = [&] {
    return all([&](const Child& child) { return is_part(child) || child.has_finished; });
  };
  is_over_ = true;
  return wait_for("servers to write what they have", have_finished);
}

// ---- what came of it -------------------------------------------------------------------------

// All keepers of a range have the same bits. Gives the parameters.
Status SyncRun::compare_keepers(std::vector<float>& parameters) const {
  const auto text_of = [&](const char* kind, PeerId keeper) {
    return read_all(folder_.path() / cat(kind, "-", keeper));
  };
  const Membership& members = roster_.newest().members;
  for (size_t i = 0; i < members.ranges.size(); ++i) {
    const std::vector<PeerId>& keepers = members.ranges[i].keepers;
    for (const PeerId keeper : keepers) {
      if (states_.count(keeper) == 0) return broken(cat("keeper ", keeper, " wrote no state"));
      if (states_.at(keeper) != states_.at(keepers.front()) ||
          text_of("state", keeper) != text_of("state", keepers.front())) {
        return broken(cat("audit: keepers ", keepers.front(), " and ", keeper, " of range ", i,
                          " have different bits, at versions ", states_.at(keepers.front()),
                          " and ", states_.at(keeper)));
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
  for (const Child& child : children_) {
    const std::string path = told_.folder + cat("/process-", child.process.number, ".log");
    const auto text = read_file(path);
    if (!text.ok()) return text.error();
    if (const Status fault = add_lines(text.value(), account); !fault.ok()) return fault.error();
  }
  const auto updates = audit(account);
  if (!updates.ok()) return updates.error();
  std::vector<float> parameters;
  if (const Status fault = compare_keepers(parameters); !fault.ok()) return fault.error();
  for (const auto& [keeper, version] : states_) {
    if (version == std::ssize(updates.value())) continue;
    return broken(cat("audit: keeper ", keeper, " is at version ", version, " after ",
                      updates.value().size(), " updates"));
  }
  SyncRunResult result;
  result.measure =
      measure_updates(updates.value(), begun_ + setting_.trial.limit, {setting_.trial.batch});
  result.changes = changes_;
  result.accuracy =
      TrialModel(setting_.trial.seed, setting_.trial.scenario.replicas).accuracy(parameters);
  result.updates = std::ssize(updates.value());
  result.epochs = roster_.newest().members.epoch;
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
