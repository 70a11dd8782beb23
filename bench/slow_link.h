// Shared by the tables of slow_link_bench: the modes of running a step, and real `tenuto train`
// runs of them with paced workers.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026 (op times of a 14B model on eight H800)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/runs.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/fault.h"
#include "world/model.h"

namespace tenuto {

inline constexpr int32_t kStages = 8, kMicros = 24;

// One mode of running the step.
struct Mode {
  std::string name, order, dispatch, send;
  bool split = true, adapts = false;
};
// Two modes with messages that block the device, one without blocking, and last the adapting one.
const std::vector<Mode>& modes();

// The command line.
struct Settings {
  std::string tenuto;            // the program
  std::string kept;              // folder for results to keep; empty = keep none
  int32_t steps = 0;             // 0 = the table's default
  double faster = 1;             // op times and delays are divided by this
  std::filesystem::path folder;  // to work in
};

// A run to make.
struct Work {
  Mode mode;
  int32_t steps = 0;
  std::vector<Fault> faults;         // slow links, with the paper's times
  std::vector<int64_t> trace_steps;  // written as Chrome traces
};

// Trains and returns the run's folder; the next call removes it.
std::filesystem::path train(const Settings& settings, const Work& work);
// The model with the paper's op times, divided by settings.faster.
Model model_of(const Settings& settings, const Plan& plan);
// The options for pricing a mode.
PriceOptions pricing_of(const Mode& mode);
// The file name for a mode's kept results.
std::string file_name(const Mode& mode);

// `slow-link --replay`: runs the modes under a trace of slow links and prints their total times.
int run_replay(Settings settings, const std::string& trace, bool json);

}  // namespace tenuto
