// Jobs that share a host, with a ledger of its cores and without, on the virtual clock.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace tenuto {

// What is measured.
struct JobsQuestion {
  int32_t jobs = 2;  // of the random hosts
  int seeds = 20;
  uint64_t first_seed = kFirstJobsSeed;
  double kappa = 0.3;
  bool json = false;

  // The constants of the ledger and of the simulation were chosen with seeds below this one.
  static constexpr uint64_t kFirstJobsSeed = 300;
};

// Prints how much jobs are slowed on hosts with two given jobs, and on hosts with random ones:
// those that stay synchronous and those that may leave it, for each way to share the host.
//
// Errors: simulate_host's
Status print_jobs(const JobsQuestion& question);

}  // namespace tenuto
