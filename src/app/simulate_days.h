// tenuto simulate --days: what a cluster of thousands of workers gets done in days with deaths,
// slow workers and slow links, and what each remedy is worth.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

namespace CLI {
class App;
}

namespace tenuto {

struct SimulateOptions;

// The flags as given. Hours between troubles are those of one worker or one link; 0 = never.
struct DaysQuestion {
  double days = 0;  // 0 = not asked
  double mtbf_hours = 50'000, repair_hours = 4;
  double straggler_hours = 200'000, straggler_minutes = 10, straggler_factor = 1.5;
  double slow_link_hours = 300'000, slow_link_minutes = 24, slow_link_factor = 5;
  std::string failures;  // CSV file with troubles, instead of drawn ones
  double cross_ms = 0;
  int32_t spare_micros = 0, layers = 4;
  double death_seconds = 5, join_seconds = 1, layers_seconds = 10, restart_seconds = 600;
  int64_t checkpoint_steps = 100;
  bool step_by_step = false;
  std::string picture;  // SVG file
};

// Simulates and prints. Returns the exit code: 0; 1 the picture could not be written; 2 wrong flags
// or an unreadable file. On 2 nothing is written to `out`.
//
// Requires: options.days.days is not 0
int run_days(const SimulateOptions& options, std::ostream& out, std::ostream& errors);

// Adds --days and the flags that belong to it. Called last: --days excludes the flags of one step.
void add_days_flags(CLI::App& command, DaysQuestion& question);

}  // namespace tenuto
