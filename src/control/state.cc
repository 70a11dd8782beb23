#include "control/state.h"

#include <algorithm>

#include "base/check.h"
#include "control/instruct.h"
#include "control/planning.h"

namespace tenuto {

int32_t Rules::worker_count() const {
  int32_t count = plan ? static_cast<int32_t>(plan->schedule.lists.size()) : 0;
  for (const Stage& stage : stages) {
    for (const WorkerId holder : stage.holders) count = std::max(count, holder.value + 1);
  }
  return count;
}

State begin(const Rules& rules, Duration now) {
  CHECK(!rules.stages.empty(), "a run has at least one stage");
  CHECK(rules.first_committed() < rules.steps, "a run has at least one step or a pass to do");
  CHECK(rules.first_committed() >= 0, "a version that is evaluated was made by a step");
  State state;
  state.rules = rules;
  state.epoch = rules.epoch;
  state.committed = state.target = rules.first_committed();
  state.stop_at = rules.steps;
  state.saved = rules.saved;
  state.progress_at = state.listened_at = now;
  state.planning = begin_planning(rules);
  state.stages = rules.stages;
  state.planning.changed_at = rules.first_step;
  state.members.resize(static_cast<size_t>(rules.worker_count()));
  const auto& stages = rules.plan ? rules.plan->stages : rules.stages;
  for (size_t w = 0; w < state.members.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (!stages_of(stages, worker).empty()) continue;
    Member& member = state.members[w];
    member.absent = true;
    member.alive = false;
    member.report.incarnation = -1;  // no process has had its place
    leave_out(state.planning, worker);
  }
  state.told = instruction_of(state);
  state.told.sequence = 1;
  return state;
}

}  // namespace tenuto
