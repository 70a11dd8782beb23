// What `tenuto plan` says about a layout: as text and as JSON.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapt/layout/baseline.h"
#include "adapt/layout/in_turn.h"
#include "adapt/layout/problem.h"
#include "adapt/layout/search.h"
#include "adapt/report/figures.h"
#include "adapt/report/row_cuts.h"
#include "base/unit.h"
#include "world/cluster.h"
#include "world/layer_chain.h"

namespace tenuto {

// A planner's result, and what it was made from.
struct PlanReport {
  PlannerCard planner;
  LayerChain chain;
  LayoutProblem problem;
  LayoutSearch search;  // of other planners than Tenuto's: the best layout and the lower bound
  Duration planning{};  // from reading the files to the result
  bool ended = false;   // the search was ended by its time limit
  std::optional<InTurnPlan> training{};  // the plan for training
  std::string training_file{};           // the file of that plan; empty = not written
  std::optional<InTurnPlan> torch{};     // the plan for PyTorch
  std::string torch_folder{};            // the folder of that plan; empty = not written
  int32_t micro_rows = 0;                // of a model file: rows of a micro-batch; 0 = not known
  std::shared_ptr<const Cluster> cluster{};  // for which the plans were made
  std::vector<RowAlternative> cuts{};        // all that were tried; empty = there was no choice
};

// Names the planner, and the numbers of stages, devices, layers and micro-batches.
std::string headline_of(const PlanReport& report);
// The step with split rows, its lower bound and bottleneck, and how the layout was found.
std::vector<Fact> facts_of(const PlanReport& report);
// The facts of the plan for training. Requires: report.training
std::vector<Fact> training_facts(const PlanReport& report);
// The devices that have no stage with split rows.
std::vector<int32_t> idle_devices(const PlanReport& report);

// Rows of cells; the first row has the names of the columns.
using TextRows = std::vector<std::vector<std::string>>;
// The stages and the links with split rows, a row for each.
TextRows stage_rows(const PlanReport& report);
TextRows link_rows(const PlanReport& report);

// One line with one JSON object.
std::string plan_json(const PlanReport& report);

// Some lines about the step, a table of the stages and a table of the links.
std::string plan_text(const PlanReport& report);

}  // namespace tenuto
