// tenuto plan --to torch: writes a plan as split points and a schedule CSV for PyTorch pipelining.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "adapt/layout/in_turn.h"
#include "base/result.h"
#include "world/layer_chain.h"

namespace tenuto {

// The names of the two files that are written for PyTorch.
inline constexpr char kTorchSchedule[] = "schedule.csv", kTorchSettings[] = "plan.json";

// The contents of these files.
struct TorchPlan {
  std::string csv;       // compute only; row r = rank r of each pipeline
  std::string settings;  // JSON: the split points, the devices of the ranks, the micro-batches
};

// Requires: a plan with InTurnSettings::pipelines; micro_rows = 0: not known
// Errors:   to_csv's
Result<TorchPlan> torch_plan(const InTurnPlan& plan, const LayerChain& chain, int32_t micro_rows);

// The report for people: the folder, the step, and what PyTorch cannot run of `best`, the best plan
// that Tenuto trains.
std::string torch_text(const InTurnPlan& plan, const std::string& folder, const InTurnPlan& best);

// The same for programs.
nlohmann::ordered_json torch_json(const InTurnPlan& plan, const std::string& folder,
                                  const InTurnPlan& best);

}  // namespace tenuto
