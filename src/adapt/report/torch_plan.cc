#include "adapt/report/torch_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ir/torch_csv.h"
#include "world/seats.h"

namespace tenuto {

namespace {

using Json = nlohmann::ordered_json;

// Numbers the workers as in a grid: those of pipeline 0 first, in the order of their places.
Plan in_grid(Plan plan) {
  const auto places = places_of(plan.stages);
  std::vector<std::vector<Op>> lists(places.size() * places.front().size());
  std::vector<WorkerId> number(plan.schedule.lists.size());
  for (size_t place = 0; place < places.size(); ++place) {
    for (size_t p = 0; p < places[place].size(); ++p) {
      const size_t grid = p * places.size() + place;
      const auto worker = static_cast<size_t>(places[place][p].value);
      number[worker] = {static_cast<int32_t>(grid)};
      lists[grid] = std::move(plan.schedule.lists[worker]);
    }
  }
  for (Stage& stage : plan.stages) {
    for (WorkerId& holder : stage.holders) holder = number[static_cast<size_t>(holder.value)];
  }
  plan.schedule.lists = std::move(lists);
  return plan;
}

// The parts of a plan that PyTorch's pipelining cannot run, each in a few words.
std::vector<std::string> losses_of(const Plan& plan, size_t devices) {
  std::vector<std::string> all;
  const size_t holders = plan.stages.front().holders.size();
  if (std::any_of(plan.stages.begin(), plan.stages.end(),
                  [&](const Stage& stage) { return stage.holders.size() != holders; })) {
    all.emplace_back("stages with unequal numbers of workers");
  }
  if (plan.dispatch == Dispatch::Ready) {
    all.emplace_back("dispatch of the first op that is ready");
  }
  size_t used = 0;
  for (const auto& workers : places_of(plan.stages)) used += workers.size();
  if (used < devices) {
    all.push_back(cat("the ", devices - used,
                      " idle devices, which its process group must leave "
                      "out"));
  }
  return all;
}

}  // namespace

Result<TorchPlan> torch_plan(const InTurnPlan& plan, const LayerChain& chain, int32_t micro_rows) {
  CsvOptions options;
  options.pipeline = 0;
  options.backward = plan.plan.split_backward ? CsvBackward::Split : CsvBackward::Whole;
  auto csv = to_csv(in_grid(plan.plan), options);
  if (!csv.ok()) return csv.error();
  const auto places = places_of(plan.plan.stages);
  const size_t pipelines = places.front().size();
  Json devices = Json::array();
  for (size_t p = 0; p < pipelines; ++p) {
    Json& ranks = devices.emplace_back(Json::array());
    for (const auto& workers : places) ranks.push_back(workers[p].value);
  }
  Json stages = Json::array(), splits = Json::array();
  for (size_t s = 0; s < plan.plan.stages.size(); ++s) {
    const Stage& stage = plan.plan.stages[s];
    const std::string& first = chain.names[static_cast<size_t>(stage.layer_first)];
    if (s > 0) splits.push_back(first);
    stages.push_back({{"rank", s % places.size()},
                      {"first_layer", stage.layer_first},
                      {"end_layer", stage.layer_end},
                      {"first_name", first}});
  }
  Json tree = {{"schedule", kTorchSchedule},
               {"format", "compute_only"},
               {"split_points", std::move(splits)},
               {"stages", std::move(stages)},
               {"pipelines", pipelines},
               {"devices", std::move(devices)},
               {"n_microbatches", plan.plan.schedule.micro_count / static_cast<int32_t>(pipelines)},
               {"step_ms", to_milliseconds(plan.step)}};
  if (micro_rows > 0) tree["micro_rows"] = micro_rows;
  return TorchPlan{std::move(csv).value(),
                   tree.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

std::string torch_text(const InTurnPlan& plan, const std::string& folder, const InTurnPlan& best) {
  const auto places = places_of(plan.plan.stages);
  std::string text = cat("\nfor PyTorch ", folder, ": ", plan.plan.stages.size(), " stages on ",
                         places.size(), " ranks of ", places.front().size(),
                         places.front().size() == 1 ? " pipeline" : " pipelines", "\nstep        ",
                         fixed(to_milliseconds(plan.step), 3), " ms, with reductions and update\n");
  std::string lost;
  for (const std::string& one : losses_of(best.plan, best.plan.schedule.lists.size())) {
    lost += cat(lost.empty() ? "" : "; ", one);
  }
  if (!lost.empty()) {
    text += cat("PyTorch cannot express of the best plan, of ",
                fixed(to_milliseconds(best.step), 3), " ms: ", lost, "\n");
  }
  return text;
}

Json torch_json(const InTurnPlan& plan, const std::string& folder, const InTurnPlan& best) {
  return {{"folder", folder},
          {"makespan_ms", to_milliseconds(plan.step)},
          {"stages", plan.plan.stages.size()},
          {"pipelines", plan.plan.stages.front().holders.size()},
          {"not_expressible", losses_of(best.plan, best.plan.schedule.lists.size())}};
}

}  // namespace tenuto
