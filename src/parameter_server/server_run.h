// A run with server shards as its host sees it: which processes there are, what each one is told,
// and when.
//
// Idea:  the members of an epoch (parameter_server/roster.h) go to all processes. When all have
//        placed them, the decider installs them. At the end replicas stop first; then the decider
//        commits what it has decided; then nothing more comes to the keepers, and all others
//        finish. If parts keep the ranges, the mode in force says which replicas' do: with a ring
//        its members, otherwise all; and whenever all keepers have their ranges, a handover goes
//        on. What was measured goes to the process with the decider, which chooses the sync
//        mode. Parts of a replica of several stages are told where the others listen
//        (parameter_server/formation.h) before they have placed the members.
// Right: tests/parameter_server/server_run_test.cc, and processes_test.py with real processes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "parameter_server/connect.h"
#include "parameter_server/formation.h"
#include "parameter_server/host_message.h"
#include "parameter_server/roster.h"

namespace tenuto::servers {

// What the host knows of a process.
struct HostedProcess {
  RunProcess process;
  bool is_connected = false;  // to all that it was told of
  bool is_given_up = false;   // its messages and its end are no faults any more
  bool has_ended = false;
  bool has_stopped = false, has_finished = false;
  int64_t placed = 0;        // the newest epoch that it has placed; 0 = none
  int64_t iterations = 0;    // that it has measured: of a replica's parts only one measures
  std::string address = {};  // where it listens, as it says
  // It counts as one that answers.
  bool lives() const { return !is_given_up && !has_ended; }
};

// The automaton: what processes report in, commands out. It has no clock and no thread.
//
// After each call that changes something, the caller sends what take_commands() returns, in that
// order.
class ServerRun {
 public:
  // A command for a process.
  struct Task {
    WorkerId process;
    HostCommand command;
  };

  // `roster` decides who belongs to the run. It must not have made any members yet.
  explicit ServerRun(Roster roster);

  // A process was started; its number is the next one, from 0, whatever is in `process`. If the run
  // has begun, it joins as soon as it is connected.
  WorkerId start(RunProcess process);

  // The run begins with the processes that there are.
  //
  // Errors: Invalid/Call  not all_connected(), or a run that has begun; those of Roster
  Status begin(Duration moment);

  // A process has said this.
  //
  // Errors: Corrupt/Job  a process that was not given up says that it cannot go on; a process has
  //                      lost another one that lives, before the end; a process that was never
  //                      started
  //         those of Roster
  Status handle(WorkerId from, const HostReport& report);

  // The process is about to be killed, or counts as dead: nothing more is sent to it.
  void give_up(WorkerId process);

  // The process has ended: all others are told, and the next members are made without it.
  //
  // Errors: those of Roster
  Status lose(WorkerId process);

  // The sync mode from now on, whichever process has the decider; none = that process chooses.
  //
  // Requires: a mode that check_mode_of_run accepts (ir/update_rule.h)
  void want(const std::optional<SyncMode>& mode);

  // What the job may take of its host from now on. All processes are told, also those that come
  // later. Nothing is said if it is what they were told last.
  void lease(const LeaseCommand& command);

  // Keepers write down what they have (Decider::save), whichever process has the decider. If that
  // one is lost before any state was written, the next one is told as well. Before stop(): later a
  // server may have finished when it is to be told.
  void save();

  // Begins the end: replicas stop, then the decider finishes, then all others. Before there are
  // members it does nothing.
  //
  // From then on ranges that parts keep are not handed over any more.
  void stop();

  // What is to be sent. Empty afterwards.
  std::vector<Task> take_commands();

  // All that live are connected.
  bool all_connected() const;
  // The decider has begun the newest epoch.
  bool is_installed() const { return installed_ == roster_.newest().members.epoch; }
  // How far the end of the run has come: first all replicas stop, then the decider commits what it
  // has decided, then all other processes write down their state.
  bool have_replicas_stopped() const { return ending_ > Ending::Stops; }
  bool has_decider_finished() const { return ending_ > Ending::Decides; }
  bool has_finished() const { return ending_ == Ending::Over; }

  // All processes that were started, by number.
  const std::vector<HostedProcess>& processes() const { return processes_; }
  // Why servers keep their ranges on the hosts where they do (Roster::placement).
  const std::string& placement() const { return roster_.placement(); }
  // Who belongs to the run, and where.
  const PlacedMembers& newest() const { return roster_.newest(); }
  // The version of each keeper at the end.
  const std::map<PeerId, Version>& states() const { return states_; }
  // What each keeper that has its range had applied at the end.
  std::vector<KeptTally> tallies() const;
  // What the last decider had decided at the end; none = it has not said so yet.
  const std::optional<Balance>& decided() const { return decided_; }
  // How often the mode was changed.
  int64_t changes() const { return changes_; }
  // What was said last of the committed version; all zero before.
  const CommittedReport& committed() const { return committed_; }
  // The states that were written down since the last call, in order.
  std::vector<SavedReport> take_saved();
  // The changes of the mode since the last call, in order.
  std::vector<ModeReport> take_modes();
  // What the decider has asked for since the last call, in order.
  std::vector<AskReport> take_questions();
  // What each process has sent since the last call, in order. To processes that were never started
  // nothing is sent.
  std::vector<std::pair<WorkerId, SentBytes>> take_sent();
  // The iterations that were measured since the last call, in order.
  std::vector<MeasuredIteration> take_measured();
  // The validations that were reported since the last call, in order.
  std::vector<ValidatedReport> take_validated();

 private:
  enum class Ending : uint8_t { No, Stops, Decides, Finishes, Over };

  Status take(HostedProcess& from, const ListeningReport& report);
  Status take(HostedProcess& from, const ConnectedReport& report);
  Status take(HostedProcess& from, const PlacedReport& report);
  Status take(HostedProcess& from, const MeasuredReport& report);
  Status take(HostedProcess& from, const ModeReport& report);
  Status take(HostedProcess& from, const StoppedReport& report);
  Status take(HostedProcess& from, const StateReport& report);
  Status take(HostedProcess& from, const FinishedReport& report);
  Status take(HostedProcess& from, const LostReport& report);
  Status take(HostedProcess& from, const FailedReport& report);
  Status take(HostedProcess& from, const CommittedReport& report);
  Status take(HostedProcess& from, const SavedReport& report);
  Status take(HostedProcess& from, const ValidatedReport& report);
  Status take(HostedProcess& from, const FormingReport& report);
  Status take(HostedProcess& from, const AskReport& report);
  Status take(HostedProcess& from, const TrafficReport& report);
  bool is_known(WorkerId process) const;
  HostedProcess& at(WorkerId process) { return processes_[static_cast<size_t>(process.value)]; }
  WorkerId decider() const { return newest().places.at(newest().members.decider); }
  template <class Is>
  bool all_living(Is is_so) const;
  void tell(WorkerId process, HostCommand command);
  // The process is to write down what it keeps, and to finish.
  bool finishes(const HostedProcess& one) const;
  Status follow_mode(const SyncMode& mode);
  void connect_those_that_can();
  void form_those_that_can();
  Status join(HostedProcess& process);
  Status announce();
  void install_if_placed();
  void go_on_ending();

  Roster roster_;
  Connections connections_;
  Formations formations_;
  std::vector<HostedProcess> processes_;
  std::optional<Duration> begun_;
  std::optional<SyncMode> wanted_;
  std::optional<LeaseCommand> lease_;  // none = no process has to know of any
  bool wants_save_ = false;            // and no state was written since
  CommittedReport committed_;
  SyncMode mode_;  // that is in force, as far as the ring follows it
  std::vector<SavedReport> saved_;
  std::vector<ModeReport> modes_;
  std::vector<AskReport> questions_;
  std::vector<std::pair<WorkerId, SentBytes>> sent_;
  std::vector<MeasuredIteration> measured_;
  std::vector<ValidatedReport> validated_;
  int64_t installed_ = 0, changes_ = 0;
  Ending ending_ = Ending::No;
  WorkerId finishing_;  // the process whose decider was told to finish
  std::map<PeerId, Version> states_;
  std::map<PeerId, Tally> tallies_;
  std::optional<Balance> decided_;
  Version save_{};  // what the decider that has finished told keepers last to write down
  std::vector<Task> commands_;
};

}  // namespace tenuto::servers
