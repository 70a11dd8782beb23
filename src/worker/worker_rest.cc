#include "worker/worker_rest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/effect.h"
#include "ir/version.h"

namespace tenuto {

std::optional<WorkerRest> rest_of(const Told& told) {
  const Directive& directive = told.instruction.directive;
  const auto& rest = told.rest;
  const Iteration open = iteration_on(Version{directive.committed});
  if (!rest || rest->epoch != directive.epoch || rest->step != open.value) return std::nullopt;
  const RestPart& part = rest->parts.front();
  return WorkerRest{rest, {part.stored, part.back, {}}};
}

bool can_resume(const Job& job, const Plan& plan) {
  return job.resilience.dead_workers == "continue" && !plan.update.staggered &&
         std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const Stage& stage) { return stage.holders.size() > 1; });
}

std::vector<StepInventory> inventories_of(const Holding& holding, int64_t version, const Plan& plan,
                                          const std::vector<MicroLoss>& losses,
                                          const std::vector<StepSummary>& before) {
  std::vector<StepInventory> all;
  const Version at{version};
  for (const int64_t step : {iteration_that_made(at).value, iteration_on(at).value}) {
    StepInventory held{
        step, holding.attempt(step), holding.inventory(step, !plan.split_backward), {}};
    if (held.inventory == Inventory{}) continue;
    std::set<int32_t> known;
    if (holding.step() == step) {
      for (const MicroLoss& loss : losses) known.insert(loss.micro.value);
    }
    for (const StepSummary& summary : before) {
      for (const MicroLoss& loss : summary.losses) {
        if (summary.step == step) known.insert(loss.micro.value);
      }
    }
    held.losses.assign(known.begin(), known.end());
    all.push_back(std::move(held));
  }
  return all;
}

}  // namespace tenuto
