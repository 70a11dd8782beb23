#include "adapt/report/training_plan.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "world/seats.h"

namespace tenuto {

namespace {

// "3 stages on 3-2-3 workers": those of each stage; "6 stages on 1-1-1 workers, 2 on each".
std::string shape_of(const Plan& plan) {
  std::string text;
  const auto places = places_of(plan.stages);
  for (const std::vector<WorkerId>& workers : places) {
    text += cat(text.empty() ? "" : "-", workers.size());
  }
  const size_t stages = plan.stages.size(), chunks = stages / places.size();
  return cat(stages, stages == 1 ? " stage on " : " stages on ", text, " workers",
             chunks > 1 ? cat(", ", chunks, " on each") : std::string());
}

// What a run of the plan cannot do.
std::string limits_of(const Plan& plan) {
  if (places_of(plan.stages).size() == plan.stages.size()) return {};
  return "note        no other worker can take over the work of a lost worker that holds several "
         "stages\n";
}

}  // namespace

Result<InTurnPlan> training_plan(const LayerChain& chain, const Cluster& cluster,
                                 const InTurnSettings& settings, const LayoutSearch& search,
                                 Watch& watch) {
  std::vector<Layout> layouts = search.shapes;
  if (layouts.empty()) layouts.push_back(search.best.layout);
  return plan_in_turn(chain.model, cluster, settings, layouts, &watch);
}

std::string recomputing_text(const std::vector<Stage>& stages) {
  std::string names;
  for (const StageId stage : recomputing(stages)) {
    names += cat(names.empty() ? "" : ", ", stage);
  }
  if (names.empty()) return names;
  return cat("recomputes  stage ", names, ": only the input is kept from forward to backward\n");
}

std::string training_text(const InTurnPlan& plan, const std::string& path, double rows_split) {
  const double step = to_milliseconds(plan.step), bound = to_milliseconds(plan.lower_bound);
  return cat("\nto train    ", path, path.empty() ? "" : ": ", "whole micro-batches in turn, ",
             shape_of(plan.plan), "\n", "step        ", fixed(step, 3),
             " ms, with reductions and update (", fixed(step * 1e6 / rows_split, 3),
             "x of split rows)\n", "lower bound ", fixed(bound, 3), " ms of all plans",
             bound > 0 ? cat(" (", fixed(step / bound, 3), "x)") : std::string(), "\n",
             recomputing_text(plan.plan.stages), "found by    ", plan.how, "; ", plan.priced,
             " plans were priced\n", limits_of(plan.plan));
}

nlohmann::ordered_json training_json(const InTurnPlan& plan, const std::string& path) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const Stage& stage : plan.plan.stages) {
    nlohmann::ordered_json devices = nlohmann::ordered_json::array();
    for (const WorkerId holder : stage.holders) devices.push_back(holder.value);
    stages.push_back({{"first_layer", stage.layer_first},
                      {"end_layer", stage.layer_end},
                      {"devices", std::move(devices)}});
    if (stage.recompute) stages.back()["recompute"] = true;
  }
  return {{"file", path},
          {"execution_model", "micros-in-turn"},
          {"makespan_ms", to_milliseconds(plan.step)},
          {"lower_bound_ms", to_milliseconds(plan.lower_bound)},
          {"stages", std::move(stages)},
          {"plans_priced", plan.priced}};
}

}  // namespace tenuto
