// Choosers of sync modes side by side, on recorded decisions, and the learned chooser that the
// benchmark trains or reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sync/chooser_model.h"
#include "sync/scenario.h"

namespace tenuto {

// What is measured.
struct ChooserQuestion {
  std::vector<SyncScenario> scenarios;
  uint64_t first_seed = 100;
  int seeds = 20;  // of each scenario, with a few decisions each
  double kappa = 0.3;
  std::string file;   // the chooser file to read; empty = a chooser is trained
  std::string write;  // where the chooser is written; empty = nowhere
};

// The learned chooser for so many replicas: that of the file, or without a file one that is trained
// on drawn clusters, once for each number. These have none of the scenarios' seeds or shapes.
//
// Errors: the file's, also one for another number of replicas
Result<ChooserModel> chooser_for(int32_t replicas, const std::string& file);

// Prints a table for each scenario and one for all of them together, and writes the chooser.
//
// Errors: chooser_for's; the written file's; Invalid/Call  scenarios of several numbers of
// replicas,
//         and a file to write
Status print_choosers(const ChooserQuestion& question);

}  // namespace tenuto
