// What the host of a run (parameter_server/roster.h) and its processes tell each other, as values.
//
// The host gives *commands*: it connects the processes, brings them the members of each epoch, and
// ends the run. A process answers with *reports*. What carries them keeps their order, and loses
// none while both ends live. Their bytes are in parameter_server/message_bytes.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/mass.h"
#include "ir/version.h"
#include "parameter_server/roster.h"
#include "sync/scenario.h"
#include "sync/servers/tally.h"

namespace tenuto::servers {

// Where a process of the run listens.
struct ProcessAddress {
  WorkerId process;
  std::string address;  // as the transport writes it, at most kFrameText bytes
  bool operator==(const ProcessAddress&) const = default;
};

// What the kernel of a process's host knows of an iteration that was computed there. The kernel is
// not asked in short iterations: they have what it said last. Zero = not known.
struct ProcessorTimes {
  Duration run_delay{};  // of the thread that was ready for longest without a processor
  Duration cpu{};        // of all threads
  double pressure = 0;   // share of the time in which tasks of the host waited for one, 0 to 1
  bool operator==(const ProcessorTimes&) const = default;
};

// An iteration of a replica that has ended.
struct MeasuredIteration {
  ReplicaId replica;
  IterationTime time;
  double share = 1;                 // its mass, as a part of a whole iteration's
  std::optional<double> loss = {};  // the mean over its samples; none = nobody has computed it
  Duration receive = {};            // the part of time.transfer in which its parameters came
  ProcessorTimes processor = {};
};

// ---- commands --------------------------------------------------------------------------------

// The first command: connect to these, which were started before.
struct ConnectCommand {
  std::vector<ProcessAddress> processes;
};
// The run begins, or has begun.
struct BeginCommand {
  Duration moment{};  // on the monotonic clock
};
// The members of the next epoch.
struct MembersCommand {
  PlacedMembers placed;
};
// To the process with the decider: all have the members, which it installs now.
struct InstallCommand {};
// This process is lost.
struct LostCommand {
  WorkerId process;
};
// To the process with the decider: a replica has measured this.
struct MeasuredCommand {
  MeasuredIteration iteration;
};
// To the process with the decider: run this mode until the next such command. None = its own
// choice.
struct ModeCommand {
  std::optional<SyncMode> mode;
};
// To a replica: no more offers.
struct StopCommand {};
// The run is over: commit what is decided, write down what is here, and do nothing more.
struct FinishCommand {
  // What keepers were told last to write down (Record::save). The record that says so may still be
  // on its way, over another connection than this command: a keeper finishes after it.
  Version save{};
};
// To the process with the decider: keepers are to write down what they have (Decider::save).
struct SaveCommand {};
// To a part of a replica of several stages: the parts of this formation listen there
// (parameter_server/formation.h).
struct FormCommand {
  int64_t epoch = 0;                   // of the formation
  std::vector<std::string> addresses;  // by stage, each of at most kFrameText bytes
};
// How fast a process may send to all others together.
struct SendingLimit {
  WorkerId process;
  double bytes_per_second = 0;
  bool operator==(const SendingLimit&) const = default;
};
// To every process of a run whose job shares its host with others (sync/ledger.h). Before the first
// such command the job may not leave the synchronous mode, and nothing is limited.
struct LeaseCommand {
  bool may_leave = false;  // the chooser may leave the synchronous mode
  double cores = 0;        // that the process of a part may use on average; 0 = no limit
  // How fast processes may send; one that is not listed may send as fast as it can.
  std::vector<SendingLimit> sending = {};
  std::vector<WorkerId> spared = {};  // to these all may send as fast as they can
  bool operator==(const LeaseCommand&) const = default;
};

// One command.
using HostCommand = std::variant<ConnectCommand, BeginCommand, MembersCommand, InstallCommand,
                                 LostCommand, MeasuredCommand, ModeCommand, StopCommand,
                                 FinishCommand, SaveCommand, FormCommand, LeaseCommand>;

// ---- reports ---------------------------------------------------------------------------------

// The process listens here.
struct ListeningReport {
  std::string address;    // at most kFrameText bytes
  std::string host = {};  // the name of its host, in the same way; empty = not known
  int64_t port = 0;       // RunProcess::port
};
// It is connected to all that it was told of.
struct ConnectedReport {};
// It has made the peers of this epoch that live here. A part of a replica of several stages is
// connected to the other parts as well.
struct PlacedReport {
  int64_t epoch = 0;
};
// A replica has ended an iteration.
struct MeasuredReport {
  MeasuredIteration iteration;
};
// A mode that was compared with others, and what was expected of it.
struct ModeAlternative {
  SyncMode mode;
  double gradients_per_second = 0;  // of one replica's iteration each
  double age = 0;                   // of these, on average, in gradients
  double progress = 0;              // gradients of age 0 per second (sync/progress.h)
  bool operator==(const ModeAlternative&) const = default;
};
// As many of them are sent.
inline constexpr size_t kMostAlternatives = 8;
// The decider that lives here has changed the mode.
struct ModeReport {
  SyncMode mode;
  std::string reason = {};  // one sentence, of which kFrameText bytes are sent
  Version version = {};     // after all updates that were decided in the mode before
  std::vector<ModeAlternative> alternatives = {};  // that it was chosen from, best first
};
// A replica makes no more offers.
struct StoppedReport {};
// At the end: the version of a keeper that lives here.
struct StateReport {
  PeerId keeper;
  Version version;
  bool is_filled = true;  // it has its range
  Tally tally = {};       // to this version, if it is filled
};
// Everything is written down.
struct FinishedReport {
  bool has_decider = false;  // lives here
  Balance decided = {};      // of it
  Version save = {};         // what it has told keepers last to write down
};
// The connection to this process is lost.
struct LostReport {
  WorkerId process;
};
// The process cannot go on.
struct FailedReport {
  std::string why;  // one sentence, of which kFrameText bytes are sent
};
// The decider that lives here has committed more than it said before. A process that has just
// become the one with the decider says it too. It is also said when only `filled` has risen.
struct CommittedReport {
  Version version;    // that is committed
  Mass applied;       // in all updates to this version
  Mass dropped;       // in offers that were dropped as stale
  double age = 0;     // mean of these works, in gradients (sync/progress.h)
  int64_t works = 0;  // that were decided since the report before
  SyncMode mode;      // that is in force now
  // The newest epoch of which every keeper has its range, as the decider knows; 0 = none yet.
  int64_t filled = 0;
  // What the choice of the mode has learned that age costs (sync/kappa_estimate.h); none = it
  // learns nothing.
  std::optional<double> kappa = {};
};
// A file that a process has written.
struct SavedFile {
  std::string name;  // in the folder that the process was given
  int64_t bytes = 0;
  std::string checksum;
  bool operator==(const SavedFile&) const = default;
};
// The first keeper of a range, which lives here, has written down its state at this version. The
// version is committed. It may come again from the keeper that takes its place: with the same bits.
struct SavedReport {
  ElementRange range;
  Version version;
  Mass mass;  // that was applied to this version
  std::vector<SavedFile> files;
  Tally tally = {};         // of the keeper, to this version
  bool has_record = false;  // the one of this version is in the files
  Balance decided = {};     // of that record
};
// A replica has computed its share of the held-out loss: with the first parameters that it had at
// or above the mass of so many steps.
struct ValidatedReport {
  ReplicaId replica;
  int64_t step = 0;     // the number of steps
  double loss_sum = 0;  // over its micro-batches of the held-out pass, in nats per target
  int64_t micros = 0;   // of the held-out pass; 0 = the replica has none of them
  // Over the same micro-batches, the share of right targets (MicroLoss); none: it is not known.
  std::optional<double> accuracy_sum = {};
};
// A part of a replica has made its wire to the parts of the other stages, and listens at this
// address.
struct FormingReport {
  int64_t epoch = 0;    // of the formation
  std::string address;  // at most kFrameText bytes
};
// The decider that lives here would leave the synchronous mode for this one, and may not.
struct AskReport {
  SyncMode mode;
  double gain = 0;  // the part by which the progress would grow, as the chooser expects it
};
// Bytes that have left for a process.
struct SentBytes {
  WorkerId to;
  int64_t bytes = 0;
  bool operator==(const SentBytes&) const = default;
};
// What the process has sent to others since it said so last. Only a run whose job shares its host
// is told, once a second.
struct TrafficReport {
  std::vector<SentBytes> sent;
};

// One report.
using HostReport = std::variant<ListeningReport, ConnectedReport, PlacedReport, MeasuredReport,
                                ModeReport, StoppedReport, StateReport, FinishedReport, LostReport,
                                FailedReport, CommittedReport, SavedReport, ValidatedReport,
                                FormingReport, AskReport, TrafficReport>;

}  // namespace tenuto::servers
