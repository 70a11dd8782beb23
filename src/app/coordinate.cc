#include "app/coordinate.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "adapt/spread.h"
#include "app/ask.h"
#include "app/checkpoint.h"
#include "app/planner.h"
#include "app/record.h"
#include "app/rehearsal.h"
#include "app/steps_picture.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "control/replan.h"
#include "control/server.h"
#include "ir/text.h"
#include "world/load.h"

namespace tenuto {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kRepeat = std::chrono::milliseconds(500);
// For workers to leave by themselves: after a job well done, and after anything else.
constexpr Duration kLeave = std::chrono::seconds(5);
constexpr Duration kLeaveInTrouble = std::chrono::milliseconds(500);

sigset_t claimed_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  return signals;
}

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

class Coordinator {
 public:
  explicit Coordinator(const RunInput& input)
      : input_(input),
        rehearsal_(input.job->faults, input.job->steps),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        signals_([] {
          const sigset_t claimed = claimed_signals();
          return signalfd(-1, &claimed, SFD_CLOEXEC | SFD_NONBLOCK);
        }()) {}

  Status start();
  Ending run();

 private:
  void wait();
  void collect();
  void collect_signals();
  void answer(const Question& question);
  void rehearse_death(const Question& question, const Request& request);
  void hear(decltype(Input::what) what);
  // Does what was decided; returns what came of it, to be heard in turn.
  std::vector<decltype(Input::what)> apply(const Decision& decision, Situation before);
  void tell(const Decision& decision, const std::function<bool(const Status&)>& check);
  Status open_record();
  Status set_later_checkpoints_aside();
  Stored store_checkpoint(const CheckpointRecord& checkpoint);
  void tell_faults();
  void make_ahead();
  void note(const std::string& kind, const std::string& sentence);
  void leave();
  void draw();

  const RunInput& input_;
  Rehearsal rehearsal_;
  const Descriptor wake_, signals_;
  std::optional<Record> record_;
  std::unique_ptr<Planner> planner_;
  std::optional<Cluster> ahead_of_;  // plans are made ahead for the next death in this one
  int64_t situations_ = 0;
  MemoryStore store_;
  State state_;
  std::unique_ptr<Server> server_;
  Launcher launcher_;  // before the server goes, nobody is left to speak
  Duration repeated_at_{};
};

Status Coordinator::start() {
  const Job& job = *input_.job;
  const int wake = wake_.number();
  ServerSettings settings{.listen = job.coordinator.listen,
                          .job = job.name,
                          .token = input_.token,
                          .worker_count = input_.rules.worker_count(),
                          .job_toml = to_toml(job)};
  const auto ring = [wake] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof(one));
  };
  planner_ = std::make_unique<Planner>(ring);
  auto server = start_server(settings, ring);
  if (!server.ok()) return server.error();
  server_ = std::move(server).value();
  state_ = begin(input_.rules, monotonic_clock().now());
  server_->tell(state_.told, to_json(*input_.plan));
  const Status reachable =
      write_whereabouts(input_.directory->path(), {server_->address(), job.name, input_.token});
  if (!reachable.ok()) return reachable;
  if (input_.program.empty()) {
    input_.progress->event(cat("waiting for ", state_.told.order.members.size(), " workers at ",
                               server_->address(), ": start each with `tenuto worker --job ",
                               job.name, " --coordinator ", server_->address(),
                               " --worker N` and the same TENUTO_TOKEN"));
    return ok();
  }
  return launcher_.start({.program = input_.program,
                          .prefix = job.coordinator.launch,
                          .coordinator = server_->address(),
                          .job = job.name,
                          .token = input_.token,
                          .directory = input_.directory->path(),
                          .workers = state_.told.order.members});
}

Ending Coordinator::run() {
  while (!state_.ending) {
    wait();
    collect();
    hear(Tick{});
    const Duration now = monotonic_clock().now();
    if (now - repeated_at_ >= kRepeat) {
      repeated_at_ = now;
      server_->repeat();
    }
  }
  leave();
  return *state_.ending;
}

void Coordinator::wait() {
  std::vector<pollfd> waits = {{wake_.number(), POLLIN, 0}, {signals_.number(), POLLIN, 0}};
  for (const int descriptor : launcher_.descriptors()) waits.push_back({descriptor, POLLIN, 0});
  poll(waits.data(), waits.size(), static_cast<int>(to_milliseconds(kTick)));
}

void Coordinator::collect() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = read(wake_.number(), &count, sizeof(count));
  collect_signals();
  for (auto& heard : server_->take()) {
    std::visit([&](auto& of) { hear(std::move(of)); }, heard);
  }
  for (const Question& question : server_->take_questions()) answer(question);
  for (Planned& planned : planner_->take()) hear(std::move(planned));
  for (const Exited& exited : launcher_.reap()) hear(exited);
}

void Coordinator::answer(const Question& question) {
  if (question.text == "status") return server_->answer(question.id, status_text(state_), "");
  const Result<Request> request = request_of(question.text, *input_.job);
  if (!request.ok()) return server_->answer(question.id, "", request.error().message);
  if (request.value().kind == Request::Kind::Signal) {
    return rehearse_death(question, request.value());
  }
  hear(request.value());
  server_->answer(question.id, cat(question.text, ": ", answer_of(request.value(), state_)), "");
}

// The news of it comes as that of any other death.
void Coordinator::rehearse_death(const Question& question, const Request& request) {
  const WorkerId worker = worker_of(request.fault, input_.job->parallel.stages);
  const Status sent = launcher_.signal(worker, request.number);
  if (!sent.ok()) return server_->answer(question.id, "", sent.error().message);
  const std::string sentence = cat("asked to: ", describe(request.fault));
  if (record_) (void)record_->event("fault", state_.epoch, state_.committed, sentence);
  input_.progress->event(sentence);
  server_->answer(question.id, cat(question.text, ": done in step ", state_.committed), "");
}

void Coordinator::collect_signals() {
  signalfd_siginfo info;
  while (read(signals_.number(), &info, sizeof(info)) == sizeof(info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1) {
      hear(Request{Request::Kind::Checkpoint, number});
    } else {
      hear(Request{Request::Kind::Stop, number});
    }
  }
}

void Coordinator::hear(decltype(Input::what) what) {
  std::vector<decltype(Input::what)> inputs;
  inputs.push_back(std::move(what));
  for (size_t next = 0; next < inputs.size(); ++next) {
    const Situation before = state_.situation;
    const Input input{monotonic_clock().now(), std::move(inputs[next])};
    Decision decision = decide(state_, input);
    state_ = std::move(decision.state);
    for (auto& follows : apply(decision, before)) inputs.push_back(std::move(follows));
  }
}

std::vector<decltype(Input::what)> Coordinator::apply(const Decision& decision, Situation before) {
  std::vector<decltype(Input::what)> follows;
  const auto check = [&](const Status& status) {
    if (!status.ok()) follows.push_back(Trouble{status.error().message});
    return status.ok();
  };
  check(store_.write(facts_of(state_)));  // before anybody is told
  const bool begins = before == Situation::Gathering && state_.situation == Situation::Running;
  if (begins && !check(open_record())) return follows;  // the workers are not told to run
  if (decision.order) tell(decision, check);
  for (const WorkerId worker : decision.expelled) {
    // It may stand still, or be cut off; where it was started by someone else it leaves by itself.
    (void)launcher_.signal(worker, SIGKILL);
  }
  const Duration now = monotonic_clock().now();
  for (const StepRecord& step : decision.steps) {
    input_.progress->step(step, now);
    if (record_) check(record_->step(step));
  }
  for (const Verdict& verdict : decision.verdicts) {
    note("detection", verdict.sentence);
    const bool link =
        verdict.kind == VerdictKind::SlowLink || verdict.kind == VerdictKind::LinkHealed;
    if (link) input_.progress->event(verdict.sentence);  // about workers nothing is done yet
  }
  for (const Repaired& repaired : decision.repaired) {
    if (record_) (void)record_->event("repair", state_.epoch, repaired.step, repaired.sentence);
    input_.progress->event(repaired.sentence);
  }
  if (decision.wanted) planner_->ask(*decision.wanted);
  if (!decision.reason.empty()) {
    note(state_.ending ? "end" : begins ? "start" : decision.event, decision.reason);
    const bool person = !begins && !state_.ending;
    if (person) input_.progress->event(decision.reason);
  }
  if (state_.situation == Situation::Running) tell_faults();
  if (!decision.steps.empty()) make_ahead();
  if (decision.checkpoint) follows.push_back(store_checkpoint(*decision.checkpoint));
  return follows;
}

// Plans for whoever dies next, whenever the cluster has become another one. Op times have been
// measured by then.
void Coordinator::make_ahead() {
  constexpr int64_t kMeasured = 3;  // steps
  if (!state_.rules.survive || state_.situation != Situation::Running) return;
  if (state_.committed < state_.rules.first_step + kMeasured) return;
  const Cluster& cluster = state_.planning.monitor->cluster;
  if (ahead_of_ && same_situation(*ahead_of_, cluster)) return;
  ahead_of_ = cluster;
  PlanRequest situation = question_of(state_, state_.rules.plan, true);
  situation.request = ++situations_;
  planner_->make_ahead(std::move(situation));
}

// A new plan goes to the disk before it goes to the workers.
void Coordinator::tell(const Decision& decision, const std::function<bool(const Status&)>& check) {
  if (!decision.new_plan) return server_->tell(*decision.order);
  const Planning& planning = state_.planning;
  const std::string plan = to_json(*planning.present);
  const bool first = planning.serial == state_.first_plan;
  const std::string serial = first ? std::string() : cat("-", planning.serial);
  check(write_file(cat(input_.directory->path(), "/plan-", state_.epoch, serial, ".json"),
                   plan + "\n"));
  server_->tell(*decision.order, plan);
}

void Coordinator::tell_faults() {
  for (const FaultNews& news : rehearsal_.advance(state_.committed, state_.faults)) {
    if (record_) (void)record_->event("fault", state_.epoch, news.step, news.sentence);
    input_.progress->event(news.sentence);
  }
}

Status Coordinator::open_record() {
  const std::string& path = input_.directory->path();
  const Status cleared = input_.directory->clear(input_.rules.first_step);
  if (!cleared.ok()) return cleared;
  const Status config = write_file(path + "/config.toml", to_toml(*input_.job));
  if (!config.ok()) return config;
  const Status plan =
      write_file(cat(path, "/plan-", input_.rules.epoch, ".json"), to_json(*input_.plan) + "\n");
  if (!plan.ok()) return plan;
  Result<Record> record = Record::open(path, *input_.job);
  if (!record.ok()) return record.error();
  record_ = std::move(record).value();
  if (input_.directory->beginning() == Beginning::Resume) {
    const Status aside = set_later_checkpoints_aside();
    if (!aside.ok()) return aside;
  }
  if (!input_.rules.resume_shards.empty()) {
    note("resume", cat("from the checkpoint of step ", input_.rules.first_step));
  }
  if (holds_apart(*input_.plan)) {
    const std::string moved = describe(moves_in(*input_.plan));
    if (!moved.empty()) {
      note("plan", moved);
      input_.progress->event(moved);
    }
  }
  return ok();
}

Status Coordinator::set_later_checkpoints_aside() {
  const Result<std::vector<int64_t>> aside =
      set_aside_checkpoints(input_.directory->path(), input_.rules.first_step);
  if (!aside.ok()) return aside.error();
  for (const int64_t step : aside.value()) {
    const std::string sentence =
        cat("the checkpoint of step ", step, " is set aside as checkpoint-", step,
            ".aside: this run takes another way to it");
    note("checkpoint", sentence);
    input_.progress->event(sentence);
  }
  return ok();
}

Stored Coordinator::store_checkpoint(const CheckpointRecord& checkpoint) {
  const std::string& path = input_.directory->path();
  const Manifest manifest{.step = checkpoint.version,
                          .epoch = state_.epoch,
                          .job = to_toml(*input_.job),
                          .partition = input_.plan->stages,
                          .files = checkpoint.shards};
  const Result<std::string> finished = finish_checkpoint(path, manifest);
  if (!finished.ok()) return {checkpoint.version, finished.error().message};
  prune_checkpoints(path, input_.job->keep);
  remove_unfinished(path, checkpoint.version);
  note("checkpoint", finished.value());
  input_.progress->event(cat("checkpoint of step ", checkpoint.version));
  return {checkpoint.version, ""};
}

void Coordinator::note(const std::string& kind, const std::string& sentence) {
  if (!record_) return;
  // What cannot be noted is not worth ending a run: a full disk shows at the metrics.
  (void)record_->event(kind, state_.epoch, state_.committed, sentence);
}

// What the run was like, for people; a run that has done nothing has no picture.
void Coordinator::draw() {
  if (!record_) return;
  const std::string& path = input_.directory->path();
  const Result<std::string> picture = picture_of_steps(path);
  if (!picture.ok()) return;
  const Status written = write_file(path + "/steps.svg", picture.value());
  if (!written.ok()) note("picture", written.error().message);
}

void Coordinator::leave() {
  const bool well = state_.ending->exit_code == 0;
  const Duration end = monotonic_clock().now() + (well ? kLeave : kLeaveInTrouble);
  launcher_.finish(end - monotonic_clock().now());
  remove_whereabouts(input_.directory->path());
  draw();
  // An unfinished checkpoint only takes room.
  remove_unfinished(input_.directory->path(), std::numeric_limits<int64_t>::max());
}

}  // namespace

void claim_signals() {
  const sigset_t claimed = claimed_signals();
  pthread_sigmask(SIG_BLOCK, &claimed, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

Result<Ending> coordinate(const RunInput& input) {
  Coordinator coordinator(input);
  const Status started = coordinator.start();
  if (!started.ok()) return started.error();
  return coordinator.run();
}

}  // namespace tenuto
