#include "control/recover.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/commit.h"

namespace tenuto {
namespace {

std::string names_of(const std::vector<WorkerId>& workers) {
  std::string names = workers.size() == 1 ? "worker" : "workers";
  for (const WorkerId worker : workers)
    names += cat(worker == workers.front() ? " " : ", ", worker);
  return names;
}

}  // namespace

std::string name_of_work(const State& state, int64_t step) {
  return state.rules.evaluates ? std::string("the held-out pass") : cat("step ", step);
}

DecisionPart begin_recovery(const State& state, WorkerId dead, const std::string& cause, Plan plan,
                            Duration now) {
  DecisionPart out;
  auto without = std::make_shared<const Plan>(std::move(plan));
  out.edits.add(RecoveryBegun{dead, cause, without, now});
  out.edits.add(PlanAsked{.plan = std::move(without), .routing = true});
  out.say("death", cat(cause, ": the run continues without it, epoch ", state.epoch + 1));
  return out;
}

DecisionPart begin_again(const State& state, bool redone) {
  DecisionPart out;
  const LossRecovery& recovery = state.recovery;
  out.edits.add(EpochBegun{redone});
  const std::string agreed = cat("all live workers are at version ", state.committed);
  if (state.committed >= state.stop_at) {
    out.say("recovery", cat(agreed, ", the last"));
    return out;
  }
  const char* how = recovery.rest ? " continues" : redone ? " is done again" : " begins";
  out.say("recovery", cat(agreed, ": ", name_of_work(state, open_step(state)), how, " without ",
                          names_of(recovery.dead), ", under plan ", state.planning.serial + 1, " (",
                          recovery.plan->order, ")"));
  return out;
}

DecisionPart note_resumption(const State& state, Duration now) {
  DecisionPart out;
  const LossRecovery& recovery = state.recovery;
  if (!recovery.waiting) return out;
  const bool begun =
      std::any_of(state.members.begin(), state.members.end(), [&](const Member& member) {
        return member.alive && member.report.epoch == state.epoch &&
               member.report.phase == Phase::Running && member.report.plan == state.planning.serial;
      });
  if (!begun) return out;
  out.edits.add(StepsResumed{});
  out.say("recovery", cat(name_of_work(state, state.target), " has begun ",
                          recovery.redone ? "again " : "", "without ", names_of(recovery.dead),
                          ", ", fixed(to_milliseconds(now - recovery.since), 1),
                          " ms after the coordinator heard of the loss"));
  return out;
}

}  // namespace tenuto
