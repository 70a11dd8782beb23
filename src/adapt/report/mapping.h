// Which devices have which stages, with the figures that a picture and its tables show: for a
// layout with split rows, or for a plan with whole micro-batches in turn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapt/report/plan_report.h"

namespace tenuto {

// A stage: its devices and its figures.
struct MappedStage {
  std::string layers;              // the text of layers_text
  std::vector<int32_t> devices;    // their numbers in the problem
  double busy = 0;                 // share of the step; of the busiest device
  bool busiest = false;            // it is the bottleneck
  std::vector<std::string> facts;  // a few words each: memory, micro-batches, reduction
};

// What a stage and the next one send each other.
struct MappedLink {
  double bytes = 0;            // of a micro-batch, in each direction
  std::string time;            // of a micro-batch: "1.748 ms each way"
  double busy = 0;             // share of the step; of the busiest direction
  bool busiest = false;        // it is the bottleneck
  int32_t from = -1, to = -1;  // devices of the slowest message, in the direction of activations;
                               // -1 = rows are split, or both stages are on one device
};

// All stages and links.
struct Mapping {
  std::vector<MappedStage> stages;
  std::vector<MappedLink> links;  // links[n] joins stages n and n + 1
};

// The best layout with split rows; the figures are those of plan_text.
Mapping rows_split_mapping(const PlanReport& report);

// A plan with whole micro-batches in turn: the report's plan for training or for PyTorch. A device
// is busy while it runs forwards and backwards; memory is what the price of the plan says.
//
// Requires: report.cluster
Mapping in_turn_mapping(const PlanReport& report, const InTurnPlan& plan);

// The mapping as tables: a row for each stage, and for each link.
TextRows mapped_stage_rows(const PlanReport& report, const Mapping& mapping);
TextRows mapped_link_rows(const Mapping& mapping);

}  // namespace tenuto
