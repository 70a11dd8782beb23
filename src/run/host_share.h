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

#include "base/net_device.h"
#include "base/process_stat.h"
#include "base/result.h"
#include "parameter_server/host_message.h"
#include "parameter_server/server_run.h"
#include "run/governor.h"
#include "run/host_ledger.h"
#include "run/host_traffic.h"
#include "run/served_lease.h"
#include "run/traffic_control.h"
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

// What a network device carries that the ledger's jobs have not announced.
class ForeignTraffic {
 public:
  // Mean of the last calls. `bytes`: that the device has carried so far; none = it is not known,
  // and nothing counts as foreign. `granted`: what the jobs may send and receive.
  HostAmounts take(const std::optional<DeviceBytes>& bytes, const HostAmounts& granted,
                   Duration now);

 private:
  std::optional<DeviceBytes> before_;
  std::optional<Duration> at_;
  double sent_ = 0, received_ = 0;  // bytes per second, means
};

// Notices that a limit of sending has no effect.
class SendingCheck {
 public:
  // The job has sent so much, and may send so much (0 = no limit), in bytes per second. A sentence
  // when it has sent clearly more for some calls in a row; once.
  std::string look(double sent, double limit);

 private:
  int32_t over_ = 0;  // calls in a row
  bool was_told_ = false;
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
  // See HostTraffic: what the processes report is added here.
  HostTraffic& traffic() { return traffic_; }

  // What is to be told.
  struct Round {
    std::vector<std::string> events;
    servers::LeaseCommand command;  // for all processes
  };
  // Speaks with the ledger once a second; none = it is not time yet. `run`: all processes that were
  // started.
  std::optional<Round> advance(Duration now, const std::vector<servers::HostedProcess>& run);
  // The run has ended, and its processes with it. Returns why that cannot be said; empty = it was
  // said.
  std::string leave();

 private:
  std::vector<ProcessStat> processes() const;
  HostRates measure(const std::vector<ProcessStat>& all, Duration now);
  std::vector<SendingEnd> ends_of(const std::vector<servers::HostedProcess>& run) const;
  void limit_sending(const std::vector<servers::HostedProcess>& run, double sent, Round& round);

  const int32_t starter_;
  const int32_t parts_;       // that the job has, all on this host
  const std::string device_;  // that carries the traffic
  const LedgerFileSettings here_;
  const SharedLedger ledger_;
  ServedLease lease_;
  Governor governor_;
  TrafficControl control_;
  UsedCores used_;
  HostTraffic traffic_;
  ForeignTraffic foreign_;
  SendingCheck check_;
  HostAmounts granted_{};        // to all jobs, as the ledger said last
  std::vector<HostJob> jobs_;    // in the ledger, in the same way
  Duration next_{};              // round
  bool was_told_ = false;        // what the governor can do
  std::string told_of_sending_;  // how sending is limited
};

}  // namespace tenuto
