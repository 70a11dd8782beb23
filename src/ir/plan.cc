#include "ir/plan.h"

#include <algorithm>

#include "base/contains.h"

namespace tenuto {

bool holds(const Stage& stage, WorkerId worker) { return contains(stage.holders, worker); }

std::vector<StageId> stages_of(const std::vector<Stage>& stages, WorkerId worker) {
  std::vector<StageId> held;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (holds(stages[stage], worker)) held.push_back({static_cast<int32_t>(stage)});
  }
  return held;
}

std::vector<StageId> recomputing(const std::vector<Stage>& stages) {
  std::vector<StageId> those;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (stages[stage].recompute) those.push_back({static_cast<int32_t>(stage)});
  }
  return those;
}

TimeShare time_share_of(const std::vector<Stage>& stages, int32_t workers, StageId stage) {
  // With as many stages as workers in a pipeline there are no chunks: a worker that holds a second
  // stage keeps a copy of it or took it over from a dead worker.
  if (stages.size() == static_cast<size_t>(workers)) return {stage.value, 1};
  const WorkerId holder = stages[static_cast<size_t>(stage.value)].holders.front();
  const auto chunks = static_cast<int32_t>(stages_of(stages, holder).size());
  return {chunks == 1 ? stage.value : holder.value % workers, chunks};
}

UpdateStyle update_style_of(const Schedule& schedule) {
  UpdateStyle style;
  style.tied = std::any_of(schedule.groups.begin(), schedule.groups.end(),
                           [](const Group& group) { return group.stages.size() > 1; });
  for (const std::vector<Op>& list : schedule.lists) {
    const auto last =
        std::find_if(list.rbegin(), list.rend(), [](const Op& op) { return is_step(op.kind); });
    if (last == list.rend()) continue;
    style.staggered = last->kind == OpKind::StepAhead;
    break;
  }
  return style;
}

}  // namespace tenuto
