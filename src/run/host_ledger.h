// The ledger of a host (sync/ledger.h) in a file that the jobs of the host share.
//
// Idea:  each call locks a file beside it, reads the ledger, changes it, and writes it anew. The
//        file that is written takes the old one's name in one step. So a job that is killed at any
//        moment leaves the old or the new ledger, and never a torn one; its lock ends with its
//        process. A job is the process of its coordinator, by number and start. So the entries of
//        jobs that have ended are removed by the next job that calls.
//        Moments are those of CLOCK_BOOTTIME: all processes of a host share it, nobody sets it, and
//        it goes on while the host sleeps. It begins anew with the host, and so does the ledger.
// Right: tests/run/host_ledger_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sync/ledger.h"

namespace tenuto {

// What a job does with the ledger at one moment.
struct LedgerCall {
  HostUse use;                       // that it announces
  bool gives_back = false;           // its lease
  std::vector<LeaseOption> options;  // that it asks for, after that; empty = it asks for nothing
  Duration length{};                 // of the lease
};

// What the ledger says to that.
struct LedgerNews {
  std::optional<LeaseAnswer> answer;  // to what was asked; its `ended` is empty
  std::vector<std::string> ended;     // why leases of the job ended since its last call
  std::optional<Lease> lease;         // that the job has now
  HostAmounts lends{};                // to others
  HostAmounts allowed{};              // that the job may take
  HostAmounts granted{};              // the same, over all jobs of the host
  std::vector<HostJob> jobs;          // that live on the host, this one among them
  Duration now{};                     // on the ledger's clock
};

// Where the ledger is, who this job is, and what it can ask of the system. Functions are given so
// that a test can play a host.
struct LedgerFileSettings {
  std::string path;
  std::string host;      // its name
  std::string boot;      // one word that is another one after each start of the host
  HostAmounts capacity;  // of the host; a ledger keeps that of its first job until it has no jobs
  HostJob job;           // the number of this job's process
  int64_t started = 0;   // when that process was started (base/process_stat.h)
  LedgerRules rules;
  Duration lock_limit = std::chrono::seconds(1);
  std::function<Duration()> now;
  // When the process of a job was started; none = it has ended.
  std::function<std::optional<int64_t>(HostJob)> started_of;
};

// The settings of this process on this host. The capacity is that of the cores that this process
// may use, and so many bytes per second of sending, and as many of receiving; 0 = these are not
// governed.
LedgerFileSettings ledger_file_here(const std::string& path, int64_t bytes_per_second = 0);

// The ledger as one job sees it.
class SharedLedger {
 public:
  explicit SharedLedger(LedgerFileSettings settings) : settings_(std::move(settings)) {}

  // Announces, gives back and asks.
  //
  // Errors: Invalid/Call    a file that is no ledger, with the line; a ledger of another host; what
  //                         HostLedger::announce and ask refuse
  //         Timeout/Call    other jobs held the lock for the whole limit
  //         those of write_file; the system does not let the lock be opened
  Result<LedgerNews> exchange(const LedgerCall& call) const;

  // Looks at the ledger, and changes nothing. Errors: as exchange
  Status look() const;

  // The job has ended: its entries are removed. Errors: as exchange
  Status leave() const;

 private:
  // What is in the file.
  struct Content {
    HostLedger ledger;
    std::map<HostJob, int64_t> started;                    // of each job's process
    std::map<HostJob, std::vector<std::string>> untold{};  // why leases ended, until the job asks
  };
  Result<Content> fresh() const;
  Result<Content> read() const;
  Status remove_the_dead(Content& content) const;
  Status write(const Content& content) const;
  Result<LedgerNews> exchange_with(Content& content, const LedgerCall& call, Duration now) const;

  LedgerFileSettings settings_;
};

}  // namespace tenuto
