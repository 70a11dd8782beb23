#include "run/served_run.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "control/query.h"
#include "ir/sync_mode.h"
#include "ir/text.h"
#include "parameter_server/job_store.h"
#include "run/checkpoint.h"
#include "run/served_coordinator.h"
#include "world/load.h"

namespace tenuto {

using servers::ProcessKind;

// ---- the process -----------------------------------------------------------------------------

Status ServedCoordinator::start() {
  listened_at_ = progress_at_ = monotonic_clock().now();
  if (!job_.sync.ledger.empty()) {
    share_.emplace(job_, getppid());
    if (const Status readable = share_->look(); !readable.ok()) return readable;
  }
  files_.set_listener(process_.page_listener());
  auto server = process_.listen(job_.process_count());
  if (!server.ok()) return server.error();
  server_ = std::move(server).value();
  saved_ = input_.rules.saved;
  tell_workers();
  const Status reachable = process_.write_address(*server_);
  if (!reachable.ok()) return reachable;
  process_.send({.kind = Notice::Kind::Listening}, true);
  if (!input_.starts_workers) {
    input_.progress->event(process_.how_to_start(places_.all().size(), server_->address()));
  }
  return ok();
}

Ending ServedCoordinator::run() {
  while (!ending_) {
    process_.wait();
    collect();
    if (!ending_) advance();
    tell_workers();
    process_.show_life(*server_, steps_.done());
    if (process_.page().is_due()) process_.page().show(status(), places_);
  }
  process_.page().show(status(), places_);
  leave();
  return *ending_;
}

void ServedCoordinator::collect() {
  for (const Notice& notice : process_.take_notices()) hear_launcher(notice);
  for (const auto& heard : server_->take()) {
    std::visit([this](const auto& one) { hear(one); }, heard);
  }
  for (const Question& question : server_->take_questions()) answer(question);
  start_again();
}

// Starts the workers whose processes have died and are due to come back.
void ServedCoordinator::start_again() {
  const Duration now = monotonic_clock().now();
  for (const WorkerId worker : restarts_.take(now)) {
    if (stopping_ || ending_) continue;
    process_.carry_out(worker, "start", 0);
    starting_[worker] = now;
    say("join", cat(name_of(*places_.at(worker)), " is started again"));
  }
}

void ServedCoordinator::leave() {
  const std::string how = ending_->sentence.empty() ? "the job is done" : ending_->sentence;
  note("end", audited_.empty() ? how : cat(how, ": ", audited_));
  process_.leave(ending_->exit_code == 0, [this] { collect(); });
  const std::string trouble = share_ ? share_->leave() : std::string();
  if (!trouble.empty()) note("lease", trouble);
  files_.close(moment());
}

// ---- the course of the run -------------------------------------------------------------------

void ServedCoordinator::advance() {
  const Duration now = monotonic_clock().now();
  expel_the_silent(now);
  if (ending_) return;
  if (!has_begun_) return gather(now);
  tell_faults();
  share_host(now);
  const std::set<ReplicaId> present = replicas();
  steps_.set_replicas(present);
  stragglers_.set_replicas(present);
  // Replicas that have stopped would validate no more.
  if (steps_.done() >= job_.steps && !steps_.waits_for_validation(now)) stop(0, "");
  if (stopping_) return finish_stopping(now);
  const Status written = write_steps(now, job_.steps);
  if (!written.ok()) return stop(1, written.error().message);
  if (has_no_replica(now)) {
    return stop(75, cat("all replicas are lost, and none is started again: ", last_death_));
  }
  const Duration limit = input_.rules.silence_limit;
  if (now - progress_at_ < limit) return;
  end(75, cat("for ", seconds(limit), " s (network.silence_seconds) no process has done anything ",
              "in step ", steps_.done()));
}

// Once a second: says to the ledger of the host what the job takes of it, and to the processes what
// they may take.
void ServedCoordinator::share_host(Duration now) {
  if (!share_) return;
  for (const servers::AskReport& question : run_->take_questions()) {
    share_->lease().ask(question, now);
  }
  for (const auto& [from, sent] : run_->take_sent()) share_->traffic().add(from, sent);
  const std::optional<HostShare::Round> round = share_->advance(now, run_->processes());
  if (!round) return;
  for (const std::string& event : round->events) say("lease", event);
  run_->lease(round->command);
  pass_commands();
}

// Waits until all processes have come and are connected. Then the run begins.
void ServedCoordinator::gather(Duration now) {
  if (!run_ && places_.are_all_here()) make_run();
  if (ending_) return;
  if (run_ && places_.are_all_here() && run_->all_connected()) return begin(now);
  const Duration limit = input_.rules.start_limit;
  if (now - progress_at_ < limit) return;
  const std::string missing = places_.missing();
  end(75, cat("for ", seconds(limit), " s no further worker became ready",
              missing.empty() ? std::string(": not all are connected to each other")
                              : cat("; not ready: ", missing),
              "; read their logs, or raise network.connect_seconds"));
}

// The order of the numbers says who connects to whom: a process to all that have a lower one.
void ServedCoordinator::make_run() {
  const std::vector<int64_t> elements = places_.elements();
  const std::vector<servers::ElementRange> ranges = servers::ranges_of_job(job_, elements);
  servers::RosterStart start;
  start.ranges = ranges;
  start.replicas = job_.parallel.pipelines;
  start.kept_by_parts = !job_.has_servers();
  auto roster = servers::Roster::make(start);
  if (!roster.ok()) return end(1, roster.error().message);
  run_.emplace(std::move(roster).value());
  states_.emplace(ranges, Mass{job_.full_mass()});
  for (const ProcessKind kind : {ProcessKind::Server, ProcessKind::Part}) {
    for (ServedPlace& place : places_.all()) {
      if (place.process.kind == kind) host(place);
    }
  }
  progress_at_ = monotonic_clock().now();
}

void ServedCoordinator::host(ServedPlace& place) {
  places_.host(place, run_->start(place.process));
  pass_commands();
}

void ServedCoordinator::begin(Duration now) {
  const Status opened = files_.begin(cat(input_.rules.epoch), *input_.plan, moment());
  if (!opened.ok()) return end(1, opened.error().message);
  auto iterations =
      IterationFile::open(input_.directory->path() + "/iterations.txt", job_.parallel.pipelines);
  if (!iterations.ok()) return end(1, iterations.error().message);
  iterations_ = std::move(iterations).value();
  const Status begun = run_->begin(now);
  if (!begun.ok()) return end(1, begun.error().message);
  has_begun_ = true;
  form_mode_from_times();
  steps_.begin(now);
  progress_at_ = now;
  pass_commands();
  if (share_ && !input_.starts_workers) {
    say("lease",
        "the ledger of the host is told nothing of workers that were started by hand: start them "
        "with `tenuto train`");
  }
  note("start", cat("all ", places_.all().size(), " workers are connected: step ", steps_.done(),
                    " begins"));
  note_placement();
  tell_faults();
}

// A mode of the job that leaves groups, parents, shares or a window open begins with equal times of
// all replicas. It is wanted once more, to be formed from measured ones.
void ServedCoordinator::form_mode_from_times() {
  if (job_.sync.mode == "auto") return;
  const Result<SyncMode> mode = sync_mode_from_text(job_.sync.mode);
  if (mode.ok() && !is_formed(mode.value())) run_->want(mode.value());
}

// Hogs begin and end with the steps that are done.
void ServedCoordinator::tell_faults() {
  if (stopping_) return;
  for (const FaultNews& news : announcer_.advance(steps_.done())) {
    say("fault", news.sentence);
    process_.carry_out_hog(news);
  }
}

// Writes the steps below `limit` that can be reported at `time`.
Status ServedCoordinator::write_steps(Duration time, int64_t limit) {
  for (const ServedStep& step : steps_.take(time, limit)) {
    const Status written = files_.record()->step(step);
    if (!written.ok()) return written;
    input_.progress->step(step, time);
    process_.page().add(step);
  }
  return ok();
}

// A file that a later version has replaced meanwhile does not belong to this one.
void ServedCoordinator::store(const SavedVersion& saved) {
  const Status right = servers::check_tallies(saved.tallies, saved.decided);
  if (!right.ok()) {
    return end(
        1, cat("the checkpoint of step ", saved.step, " is not finished: ", right.error().message));
  }
  const std::string found = servers::audit_text(*saved.decided, saved.tallies.size());
  Manifest manifest{.step = saved.step,
                    .epoch = epoch(),
                    .job = to_toml(job_),
                    .partition = input_.plan->stages,
                    .servers = ServedState{saved.version.value, saved.mass.micros}};
  const std::string folder = unfinished_path(input_.directory->path(), saved.step) + "/";
  for (const servers::SavedFile& file : saved.files) {
    std::error_code failure;
    const auto size = std::filesystem::file_size(folder + file.name, failure);
    const bool is_whole = !failure && is_state_file(file.name) && std::cmp_equal(size, file.bytes);
    if (!is_whole) {
      return say("checkpoint", cat("the checkpoint of step ", saved.step, " is not finished: ",
                                   folder, file.name, " is not as it was written"));
    }
    manifest.files.push_back({saved.step, file.name, file.bytes, file.checksum});
  }
  // A later version of the same step may be written already.
  const Status stored = files_.store_checkpoint(manifest, saved.step - 1, moment(), found);
  if (!stored.ok()) return stop(1, stored.error().message);
  saved_ = saved.step;
  stored_ = saved.version;
}

// ---- the end ---------------------------------------------------------------------------------

// Ends the run in order: the newest version is saved, replicas stop, and what is decided is
// committed. The gradients that are under way then are in no checkpoint. Steps are written when it
// is known which ones are in the last checkpoint.
void ServedCoordinator::stop(int exit_code, const std::string& sentence) {
  if (stopping_ || ending_) return;
  stopping_ = Ending{exit_code, sentence};
  stopping_at_ = monotonic_clock().now();
  // At the mass of the last step keepers save by themselves, if it is one of those to be saved.
  const int64_t every = job_.checkpoint_every;
  const bool saves_itself = exit_code == 0 && every > 0 && job_.steps % every == 0;
  if (!saves_itself) run_->save();
  run_->stop();
  pass_commands();
}

void ServedCoordinator::finish_stopping(Duration now) {
  const Ending& wanted = *stopping_;
  const auto with = [&](const std::string& trouble) {
    return wanted.sentence.empty() ? trouble : cat(wanted.sentence, "; ", trouble);
  };
  const int in_trouble = wanted.exit_code == 0 ? 75 : wanted.exit_code;
  const Duration limit = input_.rules.save_limit();
  if (run_->has_finished()) {
    const std::vector<servers::KeptTally> tallies = run_->tallies();
    const Status right = servers::check_tallies(tallies, run_->decided());
    if (!right.ok()) return end(1, with(right.error().message));
    audited_ = servers::audit_text(*run_->decided(), tallies.size());
    const bool is_saved = stored_ == states_->newest();
    // Steps that came after the last checkpoint are done again when the run is resumed.
    const int64_t kept = is_saved && saved_ >= 0 ? saved_ : job_.steps;
    // Nothing more comes: what is missing is not waited for.
    const Status written = write_steps(now + ServedSteps::validation_limit(job_), kept);
    if (!written.ok()) return end(1, with(written.error().message));
    if (is_saved && (wanted.exit_code != 0 || saved_ >= job_.steps)) {
      return end(wanted.exit_code, wanted.sentence);
    }
    return end(in_trouble, with("not all ranges of the parameters were saved at the last version"));
  }
  if (now - stopping_at_ < limit) return;
  end(in_trouble, with(cat("its processes did not stop within ", seconds(limit), " s")));
}

void ServedCoordinator::end(int exit_code, const std::string& sentence) {
  if (!ending_) ending_ = Ending{exit_code, sentence};
}

// ---- what processes are told -----------------------------------------------------------------

void ServedCoordinator::pass_commands() {
  for (const servers::ServerRun::Task& task : run_->take_commands()) {
    places_.command(task.process, task.command);
  }
}

// Those that belong to the run.
std::set<ReplicaId> ServedCoordinator::replicas() const {
  std::set<ReplicaId> all;
  const std::vector<std::vector<servers::PeerId>>& parts = run_->newest().members.replicas;
  for (size_t replica = 0; replica < parts.size(); ++replica) {
    if (!parts[replica].empty()) all.insert(ReplicaId{static_cast<int32_t>(replica)});
  }
  return all;
}

// Epochs of the members count on from that of the run.
int64_t ServedCoordinator::epoch() const {
  const int64_t members = run_ ? run_->newest().members.epoch : 0;
  return input_.rules.epoch + std::max<int64_t>(members - 1, 0);
}

Instruction ServedCoordinator::instruction() const {
  Instruction all;
  Directive& directive = all.directive;
  directive.term = input_.rules.term;
  directive.epoch = input_.rules.epoch;
  directive.committed = steps_.done();
  directive.first_step = input_.rules.first_step;
  directive.stop_at = job_.steps;
  directive.phase = ending_ ? Phase::Out : has_begun_ ? Phase::Running : Phase::Frozen;
  for (const ServedPlace& place : places_.all()) {
    directive.members.push_back(place.worker);
    all.addresses.emplace_back();
    all.incarnations.push_back(place.incarnation);
  }
  all.plan_from = input_.rules.first_step;
  all.save_directory = input_.directory->path();
  all.resume_shards = input_.rules.resume_shards;
  all.hosted = places_.hosted();
  if (ending_) {
    all.exit_code = ending_->exit_code;
    all.ending = ending_->sentence;
  }
  return all;
}

// Sends the instruction, if it is another one than before. The first one has the plan.
void ServedCoordinator::tell_workers() {
  Instruction next = instruction();
  next.sequence = told_.sequence;
  const bool is_first = told_.sequence == 0;
  if (!is_first && next == told_) return;
  ++next.sequence;
  server_->tell(next, is_first ? to_json(*input_.plan) : std::string());
  told_ = std::move(next);
}

ServedStatus ServedCoordinator::status() const {
  ServedStatus all;
  all.situation = ending_ ? "ended" : stopping_ ? "stopping" : has_begun_ ? "running" : "gathering";
  all.step = steps_.done();
  all.steps = job_.steps;
  all.epoch = epoch();
  all.saved = saved_;
  all.mode = steps_.mode();
  all.age = steps_.age();
  all.mass = steps_.applied();
  if (!run_) return all;
  const servers::PlacedMembers& placed = run_->newest();
  for (const servers::KeptRange& kept : placed.members.ranges) {
    for (const servers::PeerId keeper : kept.keepers) ++all.kept[placed.places.at(keeper)];
  }
  return all;
}

Result<Ending> coordinate_servers(const RunInput& input) {
  ServedCoordinator coordinator(input);
  const Status started = coordinator.start();
  if (!started.ok()) {
    input.start.launcher->send({.kind = Notice::Kind::Leaving}, true);
    return started.error();
  }
  return coordinator.run();
}

}  // namespace tenuto
