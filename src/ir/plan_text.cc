// A schedule by itself as a plan: plan_of_schedule of ir/text.h.
#include "base/text.h"
#include "ir/text.h"

namespace tenuto {

namespace {

// A worker that lists an op of a stage holds the stage; messages do not count.
std::vector<Stage> stages_of(const Schedule& schedule) {
  std::vector<Stage> stages(static_cast<size_t>(schedule.stage_count));
  for (size_t s = 0; s < stages.size(); ++s) {
    stages[s].layer_first = static_cast<int32_t>(s);
    stages[s].layer_end = static_cast<int32_t>(s) + 1;
  }
  for (size_t w = 0; w < schedule.lists.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    for (const Op& op : schedule.lists[w]) {
      if (op.kind == OpKind::Send || op.kind == OpKind::Recv) continue;
      if (static_cast<size_t>(op.stage.value) >= stages.size()) continue;
      auto& holders = stages[static_cast<size_t>(op.stage.value)].holders;
      if (holders.empty() || holders.back() != worker) holders.push_back(worker);
    }
  }
  return stages;
}

}  // namespace

Result<Plan> plan_of_schedule(Schedule schedule, std::string_view source) {
  size_t ops = 0;
  for (const auto& list : schedule.lists) ops += list.size();
  // With more stages than ops some stage has no holder: refuse before allocating the stages.
  if (schedule.stage_count < 1 || static_cast<size_t>(schedule.stage_count) > ops) {
    return invalid(cat(source, ":1:8: expected a count of stages from 1 to the number of ops, ",
                       ops, ", found ", schedule.stage_count));
  }
  Plan plan;
  plan.order = "text";
  plan.split_backward = true;
  plan.stages = stages_of(schedule);
  plan.update = update_style_of(schedule);
  plan.schedule = std::move(schedule);
  return plan;
}

}  // namespace tenuto
