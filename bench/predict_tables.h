// Predictors of iteration times side by side, on recordings that the scenarios draw or that files
// hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sync/scenario.h"

namespace tenuto {

// What is measured.
struct PredictorQuestion {
  std::vector<SyncScenario> scenarios;
  uint64_t first_seed = 100;
  int seeds = 20;                       // recordings of each scenario
  std::vector<std::string> recordings;  // files to measure instead of what scenarios draw
  std::string record;                   // where the last recording is written; empty = nowhere
};

// Prints a table for each scenario or file and one for all of them together, and says who straggled
// in the last recording. The learned predictor is trained on drawn recordings of all built-in
// scenarios, with seeds that are never measured.
//
// Errors: those of the files; Invalid/Call  a recording that is no longer than a predictor's window
Status print_predictors(const PredictorQuestion& question);

}  // namespace tenuto
