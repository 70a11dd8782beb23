// What the tables of slow_link_bench share: the ways of running a step, and real runs of them by
// the program itself, with paced workers.
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

// One way of running the step.
struct Mode {
  std::string name, order, dispatch, send;
  bool split = true, adapts = false;
};
// Two whose messages block the device, one whose do not, and the one that adapts: last.
const std::vector<Mode>& modes();

// What the benchmark was asked for.
struct Settings {
  std::string tenuto;            // the program
  std::string kept;              // folder for what is worth keeping; empty = nothing is
  int32_t steps = 0;             // 0 = as the table wants
  double faster = 1;             // op times and delays are divided by this
  std::filesystem::path folder;  // to work in
};

// One run to be made.
struct Work {
  Mode mode;
  int32_t steps = 0;
  std::vector<Fault> faults;         // slow links, times of the paper
  std::vector<int64_t> trace_steps;  // written as Chrome traces
};

// Trains; returns the run's folder, which the next call removes.
std::filesystem::path train(const Settings& settings, const Work& work);
// Layers with the op times, divided by settings.faster.
Model model_of(const Settings& settings, const Plan& plan);
// How a mode is priced.
PriceOptions pricing_of(const Mode& mode);
// The file name that a mode's keepsakes have.
std::string file_name(const Mode& mode);

// `slow-link --replay`: the modes under a trace of slow links, and what that took in all.
int run_replay(Settings settings, const std::string& trace, bool json);

}  // namespace tenuto
