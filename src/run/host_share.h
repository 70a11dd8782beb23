// The share that a run has of its host: the automaton (run/served_lease.h) between the ledger's
// file, the governor and the processes of the run. For the coordinator, which starts them with its
// launcher.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/process_stat.h"
#include "base/result.h"
#include "parameter_server/host_message.h"
#include "run/governor.h"
#include "run/host_ledger.h"
#include "run/served_lease.h"
#include "world/job.h"

namespace tenuto {

// How many cores processes use.
class UsedCores {
 public:
  // The cores that these processes have used on average since the call before; 0 in the first call.
  // Of a process that is new all counts that it has used so far.
  double take(const std::vector<ProcessStat>& processes, Duration now);

 private:
  std::map<std::pair<int32_t, int64_t>, Duration> before_;  // by process and start: its time
  std::optional<Duration> at_;
};

// The share. Moments are those of monotonic_clock().
class HostShare {
 public:
  // `job`: with a ledger. `starter`: the process that starts the processes of the run.
  HostShare(const Job& job, int32_t starter);

  // What the ledger says of its file. Errors: those of SharedLedger::look
  Status look() const { return ledger_.look(); }
  // See ServedLease.
  ServedLease& lease() { return lease_; }

  // What is to be told.
  struct Round {
    std::vector<std::string> events;
    servers::LeaseCommand command;  // for all processes
  };
  // Speaks with the ledger once a second; none = it is not time yet.
  std::optional<Round> advance(Duration now);
  // The run has ended, and its processes with it. Returns why that cannot be said; empty = it was
  // said.
  std::string leave();

 private:
  std::vector<ProcessStat> processes() const;

  const int32_t starter_;
  const int32_t parts_;  // that the job has, all on this host
  const LedgerFileSettings here_;
  const SharedLedger ledger_;
  ServedLease lease_;
  Governor governor_;
  UsedCores used_;
  Duration next_{};        // round
  bool was_told_ = false;  // what the governor can do
};

}  // namespace tenuto
