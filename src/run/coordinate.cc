#include "run/coordinate.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "adapt/mesh.h"
#include "adapt/spread.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "control/commit.h"
#include "control/join.h"
#include "control/planning.h"
#include "control/recover.h"
#include "control/replan.h"
#include "control/server.h"
#include "control/take_up.h"
#include "ir/text.h"
#include "run/checkpoint.h"
#include "run/coordinator_process.h"
#include "run/fault_news.h"
#include "run/open_store.h"
#include "run/planner.h"
#include "run/promise.h"
#include "run/record.h"
#include "run/request.h"
#include "run/restarts.h"
#include "run/run_files.h"
#include "run/status.h"
#include "world/load.h"

namespace tenuto {
namespace {

class Coordinator {
 public:
  explicit Coordinator(const RunInput& input)
      : input_(input),
        process_(input),
        files_(input),
        announcer_(input.job->faults, input.job->steps),
        restarts_(input.job->resilience.restarts) {}

  Status start();
  Ending run();

 private:
  void collect();
  Status find_state();
  Status take_up_run(const Facts& facts, Rules rules);
  Result<std::shared_ptr<const Plan>> plan_of_name(const std::string& name) const;
  void hear_launcher(const Notice& notice);
  void answer(const Question& question);
  void inject_death(const Question& question, const Request& request);
  void inject_hog(const Question& question, const Request& request);
  void inject_own_death(const Question& question, const Request& request);
  // Ends this process if an injected kill of the coordinator is due with this decision.
  void die_if_due(const Decision& decision, bool begins);
  void hear(decltype(Input::what) what);
  // Executes a decision; returns the inputs for decide() that follow from it.
  std::vector<decltype(Input::what)> apply(const Decision& decision, Situation before);
  // Writes the decision into the store; false when nobody may be told of it.
  bool write_down(const std::function<bool(const Status&)>& check);
  Status write_plan() const;
  Status open_record();
  Stored store_checkpoint(const CheckpointRecord& checkpoint);
  void tell_faults();
  void tell_places();
  void start_again();
  void make_ahead();
  void note(const std::string& kind, const std::string& sentence, const EventDetails& details = {});
  void say(const std::string& kind, int64_t step, const std::string& sentence);
  void leave();

  const RunInput& input_;
  CoordinatorProcess process_;
  RunFiles files_;
  FaultAnnouncer announcer_;
  Restarts restarts_;
  std::unique_ptr<Planner> planner_;
  std::set<WorkerId> cut_off_;       // left out because of a link; their processes have not ended
                                     // yet
  std::optional<Cluster> ahead_of_;  // the cluster for which plans are made ahead
  int64_t situations_ = 0;
  std::unique_ptr<Store> store_;
  std::string lost_;  // why this coordinator must send nothing more; empty = it may
  State state_;
  std::unique_ptr<Server> server_;
};

Status Coordinator::start() {
  const Job& job = *input_.job;
  auto store = open_store(job, input_.directory->path(), input_.start.before);
  if (!store.ok()) return store.error();
  store_ = std::move(store).value();
  const Status found = find_state();
  if (!found.ok()) return found;
  const Status term = store_->write(facts_of(state_));  // before it tells any worker
  if (!term.ok()) return term;
  planner_ = std::make_unique<Planner>(process_.bell());
  files_.set_listener(process_.page_listener());
  auto server = process_.listen(input_.rules.worker_count());
  if (!server.ok()) return server.error();
  server_ = std::move(server).value();
  server_->tell(state_.told, to_json(*state_.planning.present));
  if (state_.situation == Situation::Gathering || input_.takes_up) {
    const Status reachable = process_.write_address(*server_);
    if (!reachable.ok()) return reachable;
  }
  process_.send({.kind = Notice::Kind::Listening}, true);
  if (!input_.starts_workers && input_.start.before == 0 &&
      state_.situation == Situation::Gathering) {
    input_.progress->event(
        process_.how_to_start(state_.told.directive.members.size(), server_->address()));
  }
  return ok();
}

// Begins the run, or takes it up where the previous coordinator left it.
Status Coordinator::find_state() {
  const Facts facts = store_->read();
  Rules rules = input_.rules;
  rules.term = facts.term + 1;
  if (input_.takes_up && facts.begun && !facts.ending) rules.run = facts.run;
  if (facts.run == rules.run) {
    if (facts.begun) return take_up_run(facts, std::move(rules));
    state_ = take_up_beginning(std::move(rules), facts, monotonic_clock().now());
    return ok();
  }
  if (input_.takes_up && input_.directory->beginning() == Beginning::Fresh) {
    return invalid(cat(input_.directory->path(), " holds a run whose coordinator is gone, and ",
                       "coordinator.store = \"", input_.job->coordinator.store, "\" ",
                       facts.begun ? "says that it has ended" : "has no record of it",
                       ": continue it from its newest checkpoint with --resume, or replace it with "
                       "--overwrite"));
  }
  state_ = begin(rules, monotonic_clock().now());
  return ok();
}

Status Coordinator::take_up_run(const Facts& facts, Rules rules) {
  const std::string& path = input_.directory->path();
  for (const int64_t step : list_checkpoints(path)) {
    if (step <= facts.committed) rules.saved = std::max(rules.saved, step);
  }
  const auto present = plan_of_name(facts.plan_name);
  if (!present.ok()) return present.error();
  const auto previous = plan_of_name(facts.previous_plan);
  if (!previous.ok()) return previous.error();
  const Status dropped = input_.directory->drop_metrics(facts.committed);
  if (!dropped.ok()) return dropped;
  const Status opened = files_.take_up();
  if (!opened.ok()) return opened;
  const Result<Figures> figures = read_figures(
      path, rules.first_step, [this](const MetricsLine& line) { process_.page().take_up(line); });
  if (!figures.ok()) return figures.error();
  input_.progress->take_up(figures.value());
  state_ = take_up(rules, facts, {present.value(), previous.value()}, monotonic_clock().now());
  const int64_t step = open_step(state_);
  announcer_.take_up(step);
  say("coordinator", step,
      cat("a new coordinator continues the run in step ", step, ", term ", rules.term));
  process_.page().take_up_events();  // this one, too
  return ok();
}

Result<std::shared_ptr<const Plan>> Coordinator::plan_of_name(const std::string& name) const {
  const std::string path = cat(input_.directory->path(), "/plan-", name, ".json");
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  Result<Plan> plan = plan_from_json(text.value(), path);
  if (!plan.ok()) return plan.error();
  return std::make_shared<const Plan>(std::move(plan).value());
}

Ending Coordinator::run() {
  while (!state_.ending) {
    process_.wait();
    collect();
    hear(Tick{});
    process_.show_life(*server_, state_.committed);
    if (process_.page().is_due()) process_.page().show(state_);
    if (!lost_.empty()) {  // as if dead: a successor may try
      note("coordinator", lost_);
      std::fprintf(stderr, "tenuto: %s\n", lost_.c_str());
      _exit(1);
    }
  }
  process_.page().show(state_);
  leave();
  return *state_.ending;
}

void Coordinator::collect() {
  for (const Notice& notice : process_.take_notices()) hear_launcher(notice);
  for (auto& heard : server_->take()) {
    std::visit([&](auto& of) { hear(std::move(of)); }, heard);
  }
  for (const Question& question : server_->take_questions()) answer(question);
  for (Planned& planned : planner_->take()) hear(std::move(planned));
  start_again();
}

// Starts the workers whose processes have died and are due to come back.
void Coordinator::start_again() {
  for (const WorkerId worker : restarts_.take(monotonic_clock().now())) {
    const Situation now = state_.situation;
    if (now == Situation::Salvaging || now == Situation::Ended) continue;
    process_.carry_out(worker, "start", 0);
    const bool again = has_come(state_.members[static_cast<size_t>(worker.value)]);
    say("join", open_step(state_), cat("worker ", worker, " is started", again ? " again" : ""));
  }
}

void Coordinator::answer(const Question& question) {
  if (question.text == "status")
    return server_->answer(question.id, status_text(state_, *input_.job), "");
  const Result<Request> request = request_of(question.text, *input_.job);
  if (!request.ok()) return server_->answer(question.id, "", request.error().message);
  if (request.value().kind == Request::Kind::Signal) {
    return inject_death(question, request.value());
  }
  if (request.value().kind == Request::Kind::Hog) return inject_hog(question, request.value());
  const Fault& fault = request.value().fault;
  if (request.value().kind == Request::Kind::Fault && is_of_worker(fault)) {
    const WorkerId worker = worker_of(fault, input_.job->seats());
    if (!has_come(state_.members[static_cast<size_t>(worker.value)])) {
      return server_->answer(question.id, "", cat("worker ", worker, " has not connected yet"));
    }
  }
  hear(request.value());
  server_->answer(question.id, cat(question.text, ": ", answer_of(request.value(), state_)), "");
}

// Has the launcher send the signal or start the process. The coordinator then hears of the worker's
// death as of any other.
void Coordinator::inject_death(const Question& question, const Request& request) {
  if (is_of_coordinator(request.fault)) return inject_own_death(question, request);
  const WorkerId worker = worker_of(request.fault, input_.job->seats());
  const Member& of = state_.members[static_cast<size_t>(worker.value)];
  const std::string& kind = request.fault.kind;
  const std::string refusal =
      process_.refusal_of(worker, kind, of.exited || !has_come(of), has_come(of));
  if (!refusal.empty()) return server_->answer(question.id, "", refusal);
  process_.carry_out(worker, kind, request.number);
  say("fault", open_step(state_), describe_request(request));
  server_->answer(question.id, cat(question.text, ": done in step ", open_step(state_)), "");
}

void Coordinator::inject_hog(const Question& question, const Request& request) {
  const WorkerId worker = worker_of(request.fault, input_.job->seats());
  const Member& of = state_.members[static_cast<size_t>(worker.value)];
  const std::string refusal =
      process_.refusal_of(worker, request.fault.kind, of.exited || !has_come(of), has_come(of));
  if (!refusal.empty()) return server_->answer(question.id, "", refusal);
  process_.carry_out_hog(request);
  say("fault", open_step(state_), describe_request(request));
  server_->answer(question.id, cat(question.text, ": done in step ", open_step(state_)), "");
}

void Coordinator::inject_own_death(const Question& question, const Request& request) {
  say("fault", open_step(state_), describe_request(request));
  server_->answer(question.id, cat(question.text, ": done in step ", open_step(state_)), "");
  process_.end_later(request.number);
}

void Coordinator::hear_launcher(const Notice& notice) {
  if (notice.kind == Notice::Kind::Exited) {
    const Duration now = monotonic_clock().now();
    // The worker itself is healthy: its next process waits until it can reach the others.
    if (cut_off_.erase({notice.worker}) > 0) {
      restarts_.want({notice.worker}, now);
    } else {
      restarts_.note_end({notice.worker}, now);
    }
    return hear(from_notice(notice));
  }
  if (notice.kind != Notice::Kind::Asked) return;
  const bool saves = notice.number == SIGUSR1;
  hear(Request{saves ? Request::Kind::Checkpoint : Request::Kind::Stop, notice.number});
}

void Coordinator::hear(decltype(Input::what) what) {
  std::vector<decltype(Input::what)> inputs;
  inputs.push_back(std::move(what));
  for (size_t next = 0; next < inputs.size(); ++next) {
    const Situation before = state_.situation;
    const Input input{monotonic_clock().now(), std::move(inputs[next])};
    Decision decision = decide(std::move(state_), input);
    state_ = std::move(decision.state);
    for (auto& follows : apply(decision, before)) inputs.push_back(std::move(follows));
  }
}

std::vector<decltype(Input::what)> Coordinator::apply(const Decision& decision, Situation before) {
  std::vector<decltype(Input::what)> follows;
  if (!lost_.empty()) return follows;
  const auto check = [&](const Status& status) {
    if (!status.ok()) follows.push_back(Trouble{status.error().message});
    return status.ok();
  };
  const bool begins = before == Situation::Gathering && state_.situation == Situation::Running;
  if (begins && !check(open_record())) return follows;  // the workers are not told to run
  if (decision.new_plan) check(write_plan());
  if (Record* record = files_.record()) {
    for (const StepRecord& step : decision.steps) check(record->step(step));
  }
  if (!write_down(check)) return follows;
  die_if_due(decision, begins);
  if (decision.instruction) {
    const Planning& planning = state_.planning;
    server_->tell(*decision.instruction,
                  decision.new_plan ? to_json(*planning.present) : std::string());
  }
  for (const WorkerId worker : decision.cut_off) cut_off_.insert(worker);
  for (const WorkerId worker : decision.expelled) {
    process_.carry_out(worker, "kill", SIGKILL);
  }
  const Duration now = monotonic_clock().now();
  for (const StepRecord& step : decision.steps) {
    input_.progress->step(step, now);
    process_.page().add(step);
  }
  for (const Verdict& verdict : decision.verdicts) {
    note("detection", verdict.sentence);
    const bool worker =
        verdict.kind == VerdictKind::SlowWorker || verdict.kind == VerdictKind::WorkerHealed;
    if (!worker) input_.progress->event(verdict.sentence);  // slow workers: only in events.jsonl
  }
  for (const Repaired& repaired : decision.repaired) {
    say("repair", repaired.step, repaired.sentence);
  }
  if (decision.wanted) planner_->ask(*decision.wanted);
  if (!decision.reason.empty()) {
    const bool ends = state_.ending && before != Situation::Ended;
    EventDetails details;
    details.remedies = decision.alternatives;
    details.expected_steps = decision.expected_steps;
    if (decision.new_plan) details.plan = state_.planning.serial;
    note(ends ? "end" : begins ? "start" : decision.event, decision.reason, details);
    const bool person = !begins && !state_.ending;
    if (person) input_.progress->event(decision.reason);
  }
  if (begins) tell_places();
  if (state_.situation == Situation::Running) tell_faults();
  if (!decision.steps.empty()) make_ahead();
  if (decision.checkpoint) follows.push_back(store_checkpoint(*decision.checkpoint));
  if (Record* record = files_.record()) {
    check(record->write_traces([this](const StepRecord& step) {
      return promised_spans(question_of(state_, step.plan, false));
    }));
  }
  return follows;
}

// As soon as op times have been measured, and whenever the cluster has changed since, asks the
// planner for plans for the next death.
void Coordinator::make_ahead() {
  constexpr int64_t kMeasured = 3;  // steps
  if (!state_.rules.survive || state_.situation != Situation::Running) return;
  if (state_.committed < state_.rules.first_step + kMeasured) return;
  const Cluster& cluster = state_.planning.monitor->cluster;
  if (ahead_of_ && same_situation(*ahead_of_, cluster)) return;
  ahead_of_ = cluster;
  PlanRequest situation = question_of(state_, plan_of_all(state_), true);
  situation.terms.layers = false;  // none moves before the others run on
  situation.request = ++situations_;
  planner_->make_ahead(std::move(situation));
}

bool Coordinator::write_down(const std::function<bool(const Status&)>& check) {
  const Status written = store_->write(facts_of(state_));
  if (written.ok()) return true;
  if (written.error().code == Code::Disconnected) {
    lost_ = written.error().message;
    return false;
  }
  check(written);
  // Workers may be told of an unstored decision that ends the run: no step follows it.
  return state_.situation == Situation::Salvaging || state_.situation == Situation::Ended;
}

void Coordinator::die_if_due(const Decision& decision, bool begins) {
  for (const Fault& fault : input_.job->faults) {
    if (!is_of_coordinator(fault)) continue;
    bool due = begins && fault.at_step == open_step(state_);
    for (const StepRecord& step : decision.steps) due = due || fault.at_step == step.step + 1;
    if (!due || fault.at_step >= input_.job->steps) continue;
    say("fault", fault.at_step,
        cat("injected fault: in step ", fault.at_step, " ", describe(fault)));
    std::raise(SIGKILL);
  }
}

Status Coordinator::write_plan() const {
  return files_.write_plan(state_.planning.present_name, *state_.planning.present);
}

// Users of several hosts, and of scripts whose processes others start, want to know where which
// worker is. On one host `tenuto train` numbers them in order.
void Coordinator::tell_places() {
  const std::vector<std::string> places = places_by_host(state_);
  if (places.size() == 1 && input_.job->model.kind != "module") return;
  for (const std::string& sentence : places) say("placement", open_step(state_), sentence);
}

void Coordinator::tell_faults() {
  for (const FaultNews& news : announcer_.advance(open_step(state_), state_.faults)) {
    say("fault", news.step, news.sentence);
    process_.carry_out_hog(news);
    if (news.starts.empty()) continue;
    Fault start;
    start.worker = news.starts;
    restarts_.want(worker_of(start, input_.job->seats()), monotonic_clock().now());
  }
}

Status Coordinator::open_record() {
  const Planning& planning = state_.planning;
  const Status begun =
      files_.begin(planning.present_name, *planning.present, {state_.epoch, open_step(state_)});
  if (!begun.ok()) return begun;
  if (holds_apart(*input_.plan)) {
    const std::string moved = describe(moves_in(*input_.plan, input_.job->seats()));
    if (!moved.empty()) {
      note("plan", moved);
      input_.progress->event(moved);
    }
  }
  return ok();
}

Stored Coordinator::store_checkpoint(const CheckpointRecord& checkpoint) {
  const Manifest manifest{.step = checkpoint.version,
                          .epoch = state_.epoch,
                          .job = to_toml(*input_.job),
                          .partition = input_.plan->stages,
                          .files = checkpoint.shards};
  const Status stored =
      files_.store_checkpoint(manifest, checkpoint.version, {state_.epoch, open_step(state_)});
  if (!stored.ok()) return {checkpoint.version, stored.error().message};
  return {checkpoint.version, ""};
}

void Coordinator::note(const std::string& kind, const std::string& sentence,
                       const EventDetails& details) {
  files_.note(kind, {state_.epoch, open_step(state_)}, sentence, details);
}

// Writes an event for the record, and shows it to the user.
void Coordinator::say(const std::string& kind, int64_t step, const std::string& sentence) {
  files_.say(kind, {state_.epoch, step}, sentence);
}

void Coordinator::leave() {
  process_.leave(state_.ending->exit_code == 0, [this] { collect(); });
  files_.close({state_.epoch, open_step(state_)});
}

}  // namespace

Result<Ending> coordinate(const RunInput& input) {
  Coordinator coordinator(input);
  const Status started = coordinator.start();
  if (!started.ok()) {
    // If the store is out of reach in the middle of a run, another coordinator tries again.
    const bool again = input.start.before != 0 && started.error().code == Code::Disconnected;
    if (!again) input.start.launcher->send({.kind = Notice::Kind::Leaving}, true);
    return started.error();
  }
  return coordinator.run();
}

}  // namespace tenuto
