// What the coordinator of a run with server shards makes of what processes, the launcher and a
// person say.
#include <csignal>
#include <span>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/text.h"
#include "control/query.h"
#include "control/salvage.h"
#include "parameter_server/keeper_placement.h"
#include "parameter_server/message_bytes.h"
#include "run/served_coordinator.h"
#include "world/fault.h"

namespace tenuto {

// ---- what processes say ----------------------------------------------------------------------

void ServedCoordinator::hear(const Report& report) {
  if (ending_) return;
  const Duration now = monotonic_clock().now();
  ServedPlace* before = places_.at(report.worker);
  if (before == nullptr) return;
  if (before->is_taken() && report.incarnation > before->incarnation) {
    lose(*before, {.clause = "was replaced by another process"});
    if (ending_) return;
  }
  const bool was_taken = before->is_taken(), was_ready = is_ready(*before);
  ServedPlace* place = places_.hear(report, now);
  if (place == nullptr) return;
  if (!was_taken) starting_.erase(place->worker);
  if (!was_taken || (!was_ready && is_ready(*place))) progress_at_ = now;
  if (!report.failure.empty()) return fail(*place, report.failure, report.failure_code);
  if (run_ && !place->is_hosted() && is_ready(*place)) host(*place);
  for (const std::string& bytes : ServedProcesses::take_said(*place, report)) {
    const auto said =
        servers::decode_report(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())));
    if (!said.ok()) {
      const std::string why = said.error().message;
      return lose(*place, {.clause = "sent what cannot be read", .last_words = why});
    }
    hear_said(*place, said.value());
    if (ending_ || !place->is_hosted()) return;
  }
}

// The end of its process may explain it a moment later.
void ServedCoordinator::hear(const StreamEnded& ended) {
  ServedPlace* place = places_.at(ended.worker);
  if (ending_ || place == nullptr || !place->is_taken()) return;
  if (ended.incarnation != place->incarnation || place->suspect_since) return;
  place->suspect_since = monotonic_clock().now();
  place->suspicion = "lost its connection to the coordinator";
}

void ServedCoordinator::hear_said(ServedPlace& place, const servers::HostReport& report) {
  if (!run_ || !place.is_hosted()) return;
  if (const auto* lost = std::get_if<servers::LostReport>(&report)) {
    return suspect(place, lost->process);
  }
  if (const auto* failed = std::get_if<servers::FailedReport>(&report)) {
    return fail(place, failed->why, Code::Corrupt);
  }
  // They come by the clock, also from a run that hangs.
  if (!std::holds_alternative<servers::ModeReport>(report) &&
      !std::holds_alternative<servers::AskReport>(report) &&
      !std::holds_alternative<servers::TrafficReport>(report)) {
    progress_at_ = monotonic_clock().now();
  }
  if (has_begun_ && std::holds_alternative<servers::ConnectedReport>(report)) {
    say("join", cat(name_of(place), " is back, and takes part from now on"));
  }
  const Status handled = run_->handle(place.process.number, report);
  if (!handled.ok()) {
    return end(handled.error().code == Code::Infeasible ? 75 : 1, handled.error().message);
  }
  take_news();
}

// Hands on what the host of the run has made of the reports.
void ServedCoordinator::take_news() {
  for (const servers::MeasuredIteration& iteration : run_->take_measured()) {
    take_iteration(iteration);
    if (share_) share_->lease().add(iteration);
  }
  for (const std::string& sentence : steps_.take_rises()) say("learning-rate", sentence);
  if (run_->committed().version > committed_) {
    committed_ = run_->committed().version;
    steps_.set_epoch(epoch());
    steps_.set_mode(to_text(run_->committed().mode));
    if (share_) share_->lease().set_mode(run_->committed().mode);
    steps_.add(run_->committed(), monotonic_clock().now());
    for (const std::string& sentence : steps_.take_kappas()) say("kappa", sentence);
  }
  for (const servers::ValidatedReport& report : run_->take_validated()) steps_.add(report);
  for (const servers::ModeReport& report : run_->take_modes()) {
    steps_.set_mode(to_text(report.mode));
    if (share_) share_->lease().set_mode(report.mode);
    // The reason begins with the mode.
    files_.say("mode", moment(),
               cat("sync mode ", report.reason.empty() ? steps_.mode() : report.reason),
               {.alternatives = report.alternatives, .cause = "", .host = ""});
    changed_ = report;
  }
  note_first_update();
  for (const servers::SavedReport& report : run_->take_saved()) {
    if (const auto saved = states_->add(report); saved && !ending_) store(*saved);
  }
  note_placement();
  pass_commands();
}

// Writes down where servers keep the parameters and why, when that has changed.
void ServedCoordinator::note_placement() {
  const servers::PlacedMembers& placed = run_->newest();
  if (!job_.has_servers() || placed.members.epoch == placed_) return;
  placed_ = placed.members.epoch;
  const std::string keepers = servers::keepers_text(placed.members, [&](servers::PeerId keeper) {
    const WorkerId process = placed.places.at(keeper);
    const ServedPlace* place = places_.at_process(process);
    const std::string& host = run_->processes()[static_cast<size_t>(process.value)].process.host;
    return cat(place == nullptr ? cat("process ", process) : cat("worker ", place->worker),
               host.empty() ? std::string() : cat(" on host ", host));
  });
  if (keepers == placement_) return;
  placement_ = keepers;
  note("placement", cat(keepers, ": ", run_->placement()));
}

// A mode is in force when the decider has changed it. Its first update may come an iteration later.
void ServedCoordinator::note_first_update() {
  if (!changed_ || committed_ <= changed_->version) return;
  note("update", cat("the first update in sync mode ", to_text(changed_->mode), " is committed"));
  changed_.reset();
}

// Counts an iteration, writes it down with those of the other replicas, and says who straggles.
void ServedCoordinator::take_iteration(const servers::MeasuredIteration& iteration) {
  steps_.add(iteration);
  const IterationSample sample = sample_of(iteration);
  const auto news = stragglers_.add(iteration.replica, sample, monotonic_clock().now());
  if (news) {
    const std::string cause = news->straggles ? to_text(news->cause) : std::string();
    files_.note("straggler", moment(), news->sentence,
                {.alternatives = {}, .cause = cause, .host = host_of(news->replica)});
  }
  if (!iterations_) return;
  rounds_.add(iteration.replica, sample);
  while (const auto round = rounds_.take()) {
    const Status written = iterations_->write(*round);
    if (!written.ok()) return stop(1, written.error().message);
  }
}

// Where the part of the replica lives that measures its iterations; empty = that is not known.
std::string ServedCoordinator::host_of(ReplicaId replica) const {
  const servers::PlacedMembers& placed = run_->newest();
  const auto index = static_cast<size_t>(replica.value);
  const std::vector<std::vector<servers::PeerId>>& replicas = placed.members.replicas;
  if (index >= replicas.size() || replicas[index].empty()) return {};
  const WorkerId process = placed.places.at(replicas[index].back());
  return run_->processes()[static_cast<size_t>(process.value)].process.host;
}

// Two processes without a connection cannot go on together. If no end of a process explains it, the
// one that was declared lost has to leave.
void ServedCoordinator::suspect(const ServedPlace& from, WorkerId process) {
  ServedPlace* place = places_.at_process(process);
  if (place == nullptr || place->is_declared_lost) return;
  place->is_declared_lost = true;
  place->suspect_since = monotonic_clock().now();
  place->suspicion = cat("was declared lost by ", name_of(from));
}

void ServedCoordinator::fail(ServedPlace& place, const std::string& why, Code code) {
  if (!has_begun_) return end(exit_code_of(code), cat(name_of(place), ": ", why));
  lose(place, {.clause = "failed", .last_words = why});
}

// ---- processes that are lost -----------------------------------------------------------------

void ServedCoordinator::lose(ServedPlace& place, const Fate& fate) {
  const std::string when =
      has_begun_ ? cat(" in step ", steps_.done()) : std::string(" before its first step");
  const std::string told =
      fate.last_words.empty() ? "" : " (its last error: " + fate.last_words + ")";
  const std::string sentence = cat(name_of(place), " ", fate.clause, when, told);
  last_death_ = sentence;
  if (!place.has_exited) process_.carry_out(place.worker, "kill", SIGKILL);
  const WorkerId number = place.process.number;
  places_.lose(place);
  starting_.erase(place.worker);
  if (number.value >= 0) {
    const Status lost = run_->lose(number);
    if (!lost.ok()) {
      return end(lost.error().code == Code::Infeasible ? 75 : 1,
                 cat(sentence, "; ", lost.error().message));
    }
    note_placement();
    pass_commands();
  }
  if (!has_begun_) return lose_early(place, sentence, fate.exit_early);
  say("death", sentence);
  if (job_.resilience.dead_workers == "stop") stop(75, sentence);
}

// Before the first step another process may take the place of a lost one.
void ServedCoordinator::lose_early(const ServedPlace& place, const std::string& sentence,
                                   int exit_code) {
  const int32_t restarts = job_.resilience.restarts;
  if (place.deaths > restarts) {
    const std::string spent =
        restarts > 0 ? cat(", and has no restarts left after death ", place.deaths) : "";
    return end(exit_code, sentence + spent);
  }
  progress_at_ = monotonic_clock().now();
  say("death", cat(sentence, ": the coordinator waits for a new process (restart ", place.deaths,
                   " of ", restarts, " resilience.restarts)"));
}

void ServedCoordinator::expel_the_silent(Duration now) {
  const Rules& rules = input_.rules;
  const Duration limit = rules.lost_limit.count() > 0 ? rules.lost_limit : rules.silence_limit;
  // What was said while this process slept is still to be read.
  const Duration slept = now - listened_at_;
  if (slept >= limit / 2) {
    places_.forgive(slept);
    progress_at_ += slept;
  }
  listened_at_ = now;
  for (ServedPlace& place : places_.all()) {
    if (ending_) return;
    if (!place.is_taken()) continue;
    const bool is_explained =
        place.suspect_since.has_value() && now - *place.suspect_since >= rules.explain_limit;
    if (now - place.heard_at >= limit) {
      lose(place, {.clause = cat("was silent for ", seconds(now - place.heard_at), " s")});
    } else if (is_explained) {
      lose(place, {.clause = place.suspicion});
    }
  }
}

// No replica is here, and none is about to come.
bool ServedCoordinator::has_no_replica(Duration now) const {
  return !places_.may_have_replica([&](const ServedPlace& place) {
    const auto started = starting_.find(place.worker);
    const bool is_starting =
        started != starting_.end() && now - started->second < input_.rules.start_limit;
    return restarts_.has(place.worker) || is_starting;
  });
}

// ---- what the launcher and a person say ------------------------------------------------------

void ServedCoordinator::hear_launcher(const Notice& notice) {
  if (ending_) return;
  if (notice.kind == Notice::Kind::Exited) {
    ServedPlace* place = places_.at({notice.worker});
    if (place != nullptr) hear_exit(*place, from_notice(notice));
  }
  if (notice.kind != Notice::Kind::Asked) return;
  if (notice.number == SIGUSR1) return ask_for_checkpoint();
  stop_by_signal(notice.number);
}

void ServedCoordinator::hear_exit(ServedPlace& place, const Exited& exited) {
  const bool was_expelled = !place.is_taken() && !place.has_exited;
  place.has_exited = true;
  restarts_.note_end(place.worker, monotonic_clock().now());
  if (was_expelled) return;
  // A process that ends by itself before its first step would do so again, unless it exits with 75.
  const bool may_succeed = exited.signalled || exited.number == 75;
  lose(place, {.clause = exited.signalled ? cat("was killed by signal ", exited.number)
                                          : cat("ended with exit code ", exited.number),
               .last_words = exited.last_words,
               .exit_early = may_succeed ? 75 : 1});
}

void ServedCoordinator::ask_for_checkpoint() {
  if (!has_begun_ || stopping_) return;
  say("decision", "asked for a checkpoint: the newest version will be saved");
  run_->save();
  pass_commands();
}

void ServedCoordinator::stop_by_signal(int number) {
  const std::string name = cat("stopped by signal ", number);
  if (was_signalled_) {
    return end(128 + number, cat(name, " twice: the run ends without a checkpoint"));
  }
  was_signalled_ = true;
  if (!has_begun_) return end(128 + number, cat(name, " before the first step"));
  say("decision", cat(name, ": all replicas stop"));
  stop(128 + number, cat(name, " in step ", steps_.done()));
}

void ServedCoordinator::answer(const Question& question) {
  if (question.text == "status") {
    return server_->answer(question.id, status_text(status(), places_), "");
  }
  const Result<ServedRequest> request = served_request_of(question.text, job_);
  if (!request.ok()) return server_->answer(question.id, "", request.error().message);
  if (ending_) return server_->answer(question.id, "", "the run has ended");
  std::visit([&](const auto& wish) { answer(question, wish); }, request.value());
}

void ServedCoordinator::answer(const Question& question, const ModeWish& wish) {
  if (!has_begun_ || stopping_) {
    return server_->answer(question.id, "", "the run has not begun yet, or stops already");
  }
  say("decision", cat("requested: ", question.text));
  run_->want(wish.mode);
  pass_commands();
  server_->answer(question.id, cat(question.text, ": done"), "");
}

void ServedCoordinator::answer(const Question& question, const Request& request) {
  const auto done = [&] {
    server_->answer(question.id, cat(question.text, ": done in step ", steps_.done()), "");
  };
  if (request.kind == Request::Kind::Checkpoint) {
    if (!has_begun_ || stopping_) {
      return server_->answer(question.id, "", "the run has not begun yet, or stops already");
    }
    ask_for_checkpoint();
    return done();
  }
  const std::string described = describe_request(request);
  if (is_of_coordinator(request.fault)) {
    say("fault", described);
    process_.end_later(request.number);
    return done();
  }
  const WorkerId worker = worker_of(request.fault, job_.seats());
  const ServedPlace& place = *places_.at(worker);
  const std::string& kind = request.fault.kind;
  const bool has_come = place.is_taken() || place.deaths > 0;
  const std::string refusal = process_.refusal_of(worker, kind, place.has_exited, has_come);
  if (!refusal.empty()) return server_->answer(question.id, "", refusal);
  if (request.kind == Request::Kind::Hog) {
    process_.carry_out_hog(request);
  } else {
    process_.carry_out(worker, kind, request.number);
  }
  if (kind == "start") starting_[worker] = monotonic_clock().now();
  say("fault", described);
  done();
}

}  // namespace tenuto
