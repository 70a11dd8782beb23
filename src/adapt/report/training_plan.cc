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

}  // namespace

Result<InTurnPlan> training_plan(const LayerChain& chain, const Cluster& cluster,
                                 const InTurnSettings& settings, const LayoutSearch& search,
                                 Watch& watch) {
  std::vector<Layout> layouts = search.shapes;
  if (layouts.empty()) layouts.push_back(search.best.layout);
  return plan_in_turn(chain.model, cluster, settings, layouts, &watch);
}

std::vector<Fact> recomputing_facts(const std::vector<Stage>& stages) {
  std::string names;
  for (const StageId stage : recomputing(stages)) {
    names += cat(names.empty() ? "" : ", ", stage);
  }
  if (names.empty()) return {};
  return {
      {"recomputes", cat("stage ", names, ": only the input is kept from forward to backward")}};
}

std::string recomputing_text(const std::vector<Stage>& stages) {
  return lines_of(recomputing_facts(stages));
}

std::vector<Fact> training_facts(const InTurnPlan& plan, const std::string& path,
                                 double rows_split) {
  const double step = to_milliseconds(plan.step), bound = to_milliseconds(plan.lower_bound);
  std::vector<Fact> facts = {
      {"to train",
       cat(path, path.empty() ? "" : ": ", "whole micro-batches in turn, ", shape_of(plan.plan))},
      {"step", cat(fixed(step, 3), " ms, with reductions and update (",
                   fixed(step * 1e6 / rows_split, 3), "x of split rows)")},
      {"lower bound", cat(fixed(bound, 3), " ms of all plans",
                          bound > 0 ? cat(" (", fixed(step / bound, 3), "x)") : std::string())}};
  for (Fact& fact : recomputing_facts(plan.plan.stages)) facts.push_back(std::move(fact));
  facts.push_back({"found by", cat(plan.how, "; ", plan.priced, " plans were priced")});
  if (places_of(plan.plan.stages).size() != plan.plan.stages.size()) {
    facts.push_back({"note",
                     "no other worker can take over the work of a lost worker that holds several "
                     "stages"});
  }
  return facts;
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
