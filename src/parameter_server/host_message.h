// What the host of a run (parameter_server/roster.h) and its processes tell each other, as values.
//
// The host gives *commands*: it connects the processes, brings them the members of each epoch, and
// ends the run. A process answers with *reports*. What carries them keeps their order, and loses
// none while both ends live. Their bytes are in parameter_server/message_bytes.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "parameter_server/roster.h"
#include "sync/scenario.h"

namespace tenuto::servers {

// Where a process of the run listens.
struct ProcessAddress {
  WorkerId process;
  std::string address;  // as the transport writes it, at most kFrameText bytes
  bool operator==(const ProcessAddress&) const = default;
};

// An iteration of a replica that has ended.
struct MeasuredIteration {
  ReplicaId replica;
  IterationTime time;
  double share = 1;  // its mass, as a part of a whole iteration's
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
struct FinishCommand {};

// One command.
using HostCommand =
    std::variant<ConnectCommand, BeginCommand, MembersCommand, InstallCommand, LostCommand,
                 MeasuredCommand, ModeCommand, StopCommand, FinishCommand>;

// ---- reports ---------------------------------------------------------------------------------

// The process listens here.
struct ListeningReport {
  std::string address;  // at most kFrameText bytes
};
// It is connected to all that it was told of.
struct ConnectedReport {};
// It has made the peers of this epoch that live here.
struct PlacedReport {
  int64_t epoch = 0;
};
// A replica has ended an iteration.
struct MeasuredReport {
  MeasuredIteration iteration;
};
// The decider that lives here has changed the mode.
struct ModeReport {
  SyncMode mode;
};
// A replica makes no more offers.
struct StoppedReport {};
// At the end: the version of a keeper that lives here.
struct StateReport {
  PeerId keeper;
  Version version;
};
// Everything is written down.
struct FinishedReport {};
// The connection to this process is lost.
struct LostReport {
  WorkerId process;
};
// The process cannot go on.
struct FailedReport {
  std::string why;  // one sentence, of which kFrameText bytes are sent
};

// One report.
using HostReport =
    std::variant<ListeningReport, ConnectedReport, PlacedReport, MeasuredReport, ModeReport,
                 StoppedReport, StateReport, FinishedReport, LostReport, FailedReport>;

}  // namespace tenuto::servers
