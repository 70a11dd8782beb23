// tenuto simulate: what would a step cost? Prices a plan on a cluster with slow links and slow
// workers, without a GPU and without a framework.
#pragma once

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "app/simulate_days.h"
#include "base/watch.h"
#include "sync/report.h"

namespace tenuto {

// The flags as given. Times in milliseconds; lists hold one number, or one for
// each worker of a pipeline.
struct SimulateOptions {
  std::string file;  // JOB.toml or PLAN.json; empty: flags alone
  std::optional<int32_t> stages, pipelines, micros, memory;
  std::optional<std::string> order, dispatch, split_backward, recompute;
  std::optional<double> link_ms;
  std::vector<double> forward_ms, backward_input_ms, backward_weight_ms;
  std::vector<std::string> times;         // traces with measured times
  std::vector<std::string> slow_links;    // I:X
  std::vector<std::string> slow_workers;  // P.S:FACTOR
  std::vector<std::string> lost;          // P.S
  std::optional<std::string> send, optimizer, all_reduce, update, duplex;
  std::optional<int32_t> chunks;
  std::optional<double> weight_memory, per_op_ms;
  int64_t iterations = 1;
  int64_t seed = 0;
  std::optional<double> seconds;  // limit of a search for an order or a routing
  std::string chain, cluster;     // with a plan's file: its layers and its devices, as files
  int32_t micro_rows = 0;         // of a model file as chain; 0 = the largest that was measured
  std::string trace;              // file for the Chrome trace
  std::string page;               // file for the HTML page
  std::string measured;  // run's folder, or a trace: shown on the page beside the simulated step
  DaysQuestion days;     // without days: one step is priced
  SyncQuestion sync;     // without a mode: a plan is priced
  bool json = false, gantt = false;
};

// Simulates and prints; a plan that does not fit into the devices' memory is priced, too, and the
// output says so. Returns the exit code: 0; 1 a file could not be written; 2 wrong flags or
// an unreadable file; 3 the plan is refused. On 2 and 3 nothing is written to `out`.
int run_simulate(const SimulateOptions& options, std::ostream& out = std::cout,
                 std::ostream& errors = std::cerr);

}  // namespace tenuto
