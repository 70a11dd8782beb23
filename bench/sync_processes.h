// Sync modes with real processes beside the virtual clock: the same scenario, seed and length, once
// over TCP on the real clock and once simulated.
#pragma once

#include <string>
#include <vector>

#include "bench/sync_run.h"

namespace tenuto {

// A row of the table.
struct ProcessesCase {
  std::string mode;      // its name in the table
  TrialSetting setting;  // its limit is the length of both runs
};

// What is compared.
struct ProcessesQuestion {
  std::vector<ProcessesCase> cases;
  int32_t servers = 2;
  std::vector<ProcessKill> kills;
};

// Prints a row for each case: gradients per second, their age, and how well the virtual clock
// agrees. Each run is audited (parameter_server/account.h).
//
// Errors: those of run_sync_processes and run_trial
Status print_processes(const ProcessesQuestion& question);

}  // namespace tenuto
