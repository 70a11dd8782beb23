#include "run/plan_cache.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "ir/effect.h"

namespace tenuto {
namespace {

constexpr double kSimilar = 0.1;  // share by which op times may differ

bool similar(Duration a, Duration b) {
  const auto most = static_cast<double>(std::max(a, b).count());
  return static_cast<double>(std::abs((a - b).count())) <= kSimilar * most;
}

bool similar(const Model& a, const Model& b, const std::vector<Stage>& stages) {
  if (a.layers.size() != b.layers.size()) return false;
  return std::all_of(stages.begin(), stages.end(), [&](const Stage& stage) {
    const StageCost x = stage_cost(a, stage), y = stage_cost(b, stage);
    return similar(x.forward, y.forward) && similar(x.backward_input, y.backward_input) &&
           similar(x.backward_weight, y.backward_weight);
  });
}

// True when a plan can replace another one: they differ only in orders and routes.
bool fits(const Plan& plan, const Plan& present) {
  const auto memory_limit_of = [](const Plan& of, size_t worker) {
    return worker < of.limits.size() ? of.limits[worker].memory : MemoryLimit{};
  };
  for (size_t w = 0; w < present.schedule.lists.size(); ++w) {
    if (memory_limit_of(plan, w) != memory_limit_of(present, w)) return false;
  }
  return plan.stages == present.stages && plan.split_backward == present.split_backward &&
         plan.schedule.lists.size() == present.schedule.lists.size() &&
         plan.schedule.micro_count == present.schedule.micro_count &&
         plan.evaluation.micro_count == present.evaluation.micro_count &&
         plan.update.staggered == present.update.staggered;
}

}  // namespace

bool PlanCache::answers(const Kept& kept, const PlanRequest& request) {
  return kept.routing == request.terms.routes && same_situation(kept.cluster, request.cluster) &&
         fits(*kept.plan, *request.plan);
}

void PlanCache::keep(const PlanRequest& request, std::shared_ptr<const Plan> plan) {
  Kept kept{request.model, request.cluster, request.terms.routes, std::move(plan), 0};
  for (const Schedule* schedule : {&kept.plan->schedule, &kept.plan->evaluation}) {
    for (const auto& list : schedule->lists) kept.ops += static_cast<int64_t>(list.size());
  }
  std::erase_if(kept_, [&](const Kept& other) {
    const bool replaced = answers(other, request);
    ops_ -= replaced ? other.ops : 0;
    return replaced;
  });
  if (kept.ops > most_ops_) return;
  ops_ += kept.ops;
  kept_.push_back(std::move(kept));
  for (; ops_ > most_ops_; kept_.pop_front()) ops_ -= kept_.front().ops;
}

std::shared_ptr<const Plan> PlanCache::find(const PlanRequest& request) const {
  for (const Kept& kept : kept_) {
    if (!answers(kept, request)) continue;
    return similar(kept.model, request.model, request.plan->stages) ? kept.plan : nullptr;
  }
  return nullptr;
}

}  // namespace tenuto
