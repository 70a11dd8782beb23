// tenuto plan: which layers and which devices should each stage of a pipeline have? Reads a
// measured chain of layers and a cluster, and searches for the layout with the shortest step.
#pragma once

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "adapt/report/row_cuts.h"

namespace tenuto {

// The flags as given.
struct PlanOptions {
  std::string chain;    // file of layers, see world/layer_chain.h
  std::string model;    // or a model file, see world/model_profile.h
  std::string cluster;  // file of devices, see world/cluster_file.h
  RowFlags cut;         // rows and micro-batches of a step; rows only with `model`
  std::string planner = "tenuto";
  std::optional<std::string> duplex;  // full or half; none: as the cluster file says
  std::optional<double> seconds;      // limit of the search
  std::string out;                    // file for the JSON object
  std::string html;                   // file for the page
  std::string plan;                   // file for the plan that trains
  std::vector<std::string> to;  // "torch" and a folder, for a plan that PyTorch runs; or empty
  bool json = false;
};

// Plans and prints. Returns the exit code: 0; 1 a file could not be written; 2 wrong flags or an
// unreadable file; 3 no layout fits into memory. On 1, 2 and 3 nothing is written to `out`.
//
// Requires: numbers of rows and micro-batches >= 1, seconds > 0
int run_plan(const PlanOptions& options, std::ostream& out = std::cout,
             std::ostream& errors = std::cerr);

}  // namespace tenuto
