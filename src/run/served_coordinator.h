// The coordinator of a run with server shards, as a class: run/served_run.h runs it. What it does
// by itself is in run/served_run.cc; what it makes of the words of others is in run/served_news.cc.
//
// Right: tests/run has the parts that are pure: served_steps_test.cc, saved_states_test.cc,
//        served_processes_test.cc; tests/app/train_servers_test.py has real processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/unit.h"
#include "control/input.h"
#include "control/server.h"
#include "parameter_server/server_run.h"
#include "run/coordinator_process.h"
#include "run/fault_news.h"
#include "run/host_share.h"
#include "run/iteration_file.h"
#include "run/iteration_rounds.h"
#include "run/request.h"
#include "run/restarts.h"
#include "run/run_files.h"
#include "run/saved_states.h"
#include "run/served_processes.h"
#include "run/served_steps.h"
#include "run/status.h"
#include "run/straggler_watch.h"

namespace tenuto {

// How a process was lost.
struct Fate {
  std::string clause;           // "was killed by signal 9"
  std::string last_words = {};  // what it said of it; empty = nothing
  int exit_early = 75;          // exit code if this ends the run before its first step
};

// The coordinator: the host of the run, its processes, and its files.
class ServedCoordinator {
 public:
  // `input` must outlive it.
  explicit ServedCoordinator(const RunInput& input)
      : input_(input),
        job_(*input.job),
        process_(input),
        files_(input),
        restarts_(input.job->resilience.restarts),
        places_(*input.job),
        steps_(*input.job, {input.first_mass}),
        rounds_(input.job->parallel.pipelines),
        stragglers_(input.job->parallel.pipelines),
        announcer_(input.job->faults, input.job->steps) {}

  // Begins to listen, and lets the launcher start the processes.
  //
  // Errors: those of start_server, write_coordinator_address and HostShare::look
  Status start();
  // Leads the run to its end.
  Ending run();

 private:
  void collect();
  void hear(const Report& report);
  void hear(const StreamEnded& ended);
  void hear_launcher(const Notice& notice);
  void hear_exit(ServedPlace& place, const Exited& exited);
  void hear_said(ServedPlace& place, const servers::HostReport& report);
  void take_news();
  void note_first_update();
  void note_placement();
  void take_iteration(const servers::MeasuredIteration& iteration);
  std::string host_of(ReplicaId replica) const;
  void suspect(const ServedPlace& from, WorkerId process);
  void fail(ServedPlace& place, const std::string& why, Code code);
  void lose(ServedPlace& place, const Fate& fate);
  void lose_early(const ServedPlace& place, const std::string& sentence, int exit_code);
  void answer(const Question& question);
  void answer(const Question& question, const ModeWish& wish);
  void answer(const Question& question, const Request& request);
  void start_again();
  void ask_for_checkpoint();
  void stop_by_signal(int number);

  // What follows by itself, and from the time alone.
  void advance();
  void expel_the_silent(Duration now);
  void gather(Duration now);
  void make_run();
  void host(ServedPlace& place);
  void begin(Duration now);
  void form_mode_from_times();
  void tell_faults();
  Status write_steps(Duration time, int64_t limit);
  void store(const SavedVersion& saved);
  bool has_no_replica(Duration now) const;
  void stop(int exit_code, const std::string& sentence);
  void finish_stopping(Duration now);
  void share_host(Duration now);
  void end(int exit_code, const std::string& sentence);
  void leave();

  void pass_commands();
  Instruction instruction() const;
  void tell_workers();
  ServedStatus status() const;
  int64_t epoch() const;
  std::set<ReplicaId> replicas() const;
  RunMoment moment() const { return {epoch(), steps_.done()}; }
  void note(const std::string& kind, const std::string& sentence) {
    files_.note(kind, moment(), sentence);
  }
  void say(const std::string& kind, const std::string& sentence) {
    files_.say(kind, moment(), sentence);
  }

  const RunInput& input_;
  const Job& job_;
  CoordinatorProcess process_;
  RunFiles files_;
  Restarts restarts_;
  ServedProcesses places_;
  std::map<WorkerId, Duration> starting_;  // processes that were started and have not come, since
  std::optional<servers::ServerRun> run_;  // none: not all processes have come yet
  std::optional<HostShare> share_;         // none: the job names no ledger
  bool has_begun_ = false;
  ServedSteps steps_;
  IterationRounds rounds_;
  std::optional<IterationFile> iterations_;  // none: the run has not begun
  StragglerWatch stragglers_;
  FaultAnnouncer announcer_;           // of hogs: such a run has no other faults
  Version committed_;                  // of the newest report that steps_ has
  std::optional<SavedStates> states_;  // as run_
  int64_t saved_ = -1;                 // step of the newest checkpoint
  Version stored_;                     // of the newest checkpoint of this run
  // The newest change of the mode, until its first update is committed.
  std::optional<servers::ModeReport> changed_;
  int64_t placed_ = 0;     // the epoch of which note_placement() has seen the members
  std::string placement_;  // what it has written last
  std::string audited_;    // what the audit at the end has found
  std::string last_death_;
  Duration listened_at_{};
  Duration progress_at_{};          // when a process came, or said something new
  std::optional<Ending> stopping_;  // how the run ends when its processes have stopped
  Duration stopping_at_{};
  bool was_signalled_ = false;
  std::optional<Ending> ending_;
  Instruction told_;
  std::unique_ptr<Server> server_;
};

}  // namespace tenuto
