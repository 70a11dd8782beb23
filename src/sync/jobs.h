// Several jobs with replicas on one host, on one virtual clock: with a ledger that says what each
// of them may take, and without.
//
// Only the cores of the host are shared. At every moment they are divided among the replicas that
// compute, by weight. Without a ledger the weight of a replica is what it can use, so that all are
// slowed alike. With one, the weights of a job's replicas on the host add up to what the ledger
// allows the job: so much it has whenever it can use it, and what it does not use, others may.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sync/ledger.h"
#include "sync/progress.h"
#include "sync/scenario.h"

namespace tenuto {

// A job that has replicas on the host.
struct SharedJob {
  std::string name;
  Duration arrives{};
  SyncScenario scenario;    // of all its replicas, with at most one phase
  int32_t here = 1;         // replicas 0 .. here - 1 are on the host, the others on idle hosts
  int64_t cores = 1000;     // thousandths of a core that each replica can use
  double gradients = 1000;  // of age 0, whose progress ends the job
  bool may_leave = false;   // it goes from synchronous to asynchronous when that is faster for it
};

// The host, and all jobs that come to it.
struct SharedHost {
  std::string name = "host";
  int64_t cores = 12'000;  // thousandths
  std::vector<SharedJob> jobs;
  uint64_t seed = 0;           // of the iterations' times
  double kappa = kPlainKappa;  // what age costs
};

// A simulated job has no more gradients.
inline constexpr int64_t kMostSharedGradients = 1'000'000;

// How the host is shared.
enum class HostSharing : uint8_t {
  Ledger,        // a job is asynchronous only while it has a lease
  NoPrevention,  // the same, but only what nobody uses is leased, and nothing of others
  NoLedger,      // a job is asynchronous whenever that is faster for it
};
inline constexpr size_t kHostSharings = 3;
// A name for reports: ledger, no prevention, no ledger.
std::string to_text(HostSharing sharing);

// What became of a job on the host. Cores in thousandths.
struct SharedResult {
  Duration time{};    // from its arrival to its end
  int64_t least = 0;  // that the ledger allowed it at any moment; without a ledger, its peak
  // The most at any moment: what it lent of its slack and beyond it, and what it had of others.
  int64_t lent_slack = 0, lent_beyond = 0, borrowed = 0;
  bool was_asynchronous = false;  // at some time
  std::string refusal;            // the last one of the ledger; empty = none
};

// A job alone, and under each way to share the host. Cores in thousandths.
struct SharedOutcome {
  int64_t need = 0, peak = 0;  // that its synchronous updates need, and that it can use
  Duration alone{};            // its time if it is synchronous and has its need and no more
  std::array<SharedResult, kHostSharings> results;  // by HostSharing
  // Its result if the host is shared so.
  const SharedResult& of(HostSharing sharing) const {
    return results[static_cast<size_t>(sharing)];
  }
  // Against being alone: 0.1 = its time is 10 % longer.
  double slowed(HostSharing sharing) const;
  // What was taken from its need, as the part by which this lengthens its computing at most: a
  // synchronous job is slowed by no more. 0 without a ledger: nobody says what is taken then.
  double bound(HostSharing sharing) const;
};

// What became of all jobs of a host.
struct SharedReport {
  std::vector<SharedOutcome> jobs;  // as SharedHost::jobs
  int64_t most_allowed = 0;         // to all jobs together, at any moment with the ledger
};

// Simulates the host under each way to share it, and each job alone. With a ledger, each job
// announces as use its need and an equal part of what is left up to its peak. A job that may leave
// the synchronous mode asks when it comes, whenever a job comes or ends, and every few seconds: for
// its peak, for less, or for no more than its use. If the needs of all jobs together are more than
// there is, nothing is leased, and what a job lacks of its need counts as taken from it.
//
// Errors: Invalid/Call  no job, or more than kMostHostJobs; less than a core for each; a kappa out
//         of range; a job without replicas on the host or with fewer than there, without cores or
//         with more than there are, with times below 0, with several phases or with one of no
//         length, with gradients not above 0 or above kMostSharedGradients, or with one replica if
//         it may leave synchrony
// Cost:   gradients x jobs x replicas
Result<SharedReport> simulate_host(const SharedHost& host);

// Replicas with equal weights that compute.
struct CoreDemand {
  int64_t replicas = 0;
  double weight = 1;  // of each; above 0
  double most = 0;    // that each can use
};
// What each replica of each demand gets: by weight, and no more than it can use. What one cannot
// use, goes to the others. So each gets at least its weight, or all that it can use, if all weights
// together are no more than the cores.
//
// Units: cores, weight, most, and the result: thousandths of a core
std::vector<double> divide_cores(double cores, std::span<const CoreDemand> demands);

// Two jobs on eight cores. The first stays synchronous and needs four of them; the second has a
// slow link, may leave synchrony, and could then use all eight.
SharedHost two_job_host(uint64_t seed);

// Jobs that come one after the other: with a slow link, a slow replica elsewhere, or with none.
// About half of them may leave synchrony. A pure function of the seed.
SharedHost random_host(uint64_t seed, int32_t jobs);

// A table, a line per job.
std::string to_text(const SharedHost& host, const SharedReport& report);

}  // namespace tenuto
