#include "adapt/random_step.h"

#include <algorithm>

#include "base/check.h"
#include "plan/make_plan.h"

namespace tenuto {

Step step_of(const MixtureSize& size, int32_t memory, const std::string& order) {
  Shape shape;
  shape.stages = size.stages;
  shape.pipelines = size.pipelines;
  shape.micros = size.micros;
  shape.memory = memory;
  shape.order = order;
  shape.split_backward = splits_by_default(order);
  shape.dispatch = Dispatch::Ready;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), plan.ok() ? "" : plan.error().message);
  Step it{plan.value(), {}, uniform_cluster(size.stages * size.pipelines, {}), {}};
  it.options.update = false;
  Layer layer;
  layer.forward = layer.backward_input = layer.backward_weight = kStepOp;
  it.model.layers.assign(static_cast<size_t>(size.stages), layer);
  return it;
}

void disturb(Random& random, Step& it) {
  for (int64_t left = 1 + random.below(4); left > 0; --left) {
    const auto stage = static_cast<size_t>(random.below(it.plan.stages.size()));
    const auto& holders = it.plan.stages[stage].holders;
    const WorkerId worker = holders[static_cast<size_t>(random.below(holders.size()))];
    Worker& hit = it.cluster.workers[static_cast<size_t>(worker.value)];
    const auto alive = std::count_if(holders.begin(), holders.end(), [&](WorkerId of) {
      return it.cluster.workers[static_cast<size_t>(of.value)].alive;
    });
    const int64_t kind = random.below(3);
    if (kind == 0 && alive > 1) hit.alive = false;
    if (kind == 1) hit.speed = 0.25 * static_cast<double>(1 + random.below(3));
    if (kind == 2 && stage + 1 < it.plan.stages.size()) {
      for (const WorkerId next : it.plan.stages[stage + 1].holders) {
        const Link slow{random.below(4) * kStepOp / 2, 0};
        it.cluster.exceptions[{worker, next}] = it.cluster.exceptions[{next, worker}] = slow;
      }
    }
  }
}

Step random_step(Random& random, const MixtureSize& most) {
  const auto upto = [&](int64_t bound) { return 1 + static_cast<int32_t>(random.below(bound)); };
  const int32_t stages = 1 + upto(most.stages - 1);
  const int32_t memory = random.below(3) == 0 ? 0 : upto(2 * stages);
  const int32_t pipelines = 1 + upto(most.pipelines - 1);
  Step it = step_of({stages, pipelines, upto(most.micros)}, memory);
  for (Layer& layer : it.model.layers) {
    layer.forward = layer.forward * (1 + random.below(3)) / 2;
    layer.backward_weight = layer.backward_weight * (1 + random.below(3)) / 2;
  }
  it.plan.split_backward = random.below(4) > 0;
  it.cluster.between = {{Link{random.below(2) * kStepOp / 10, 0}}};
  disturb(random, it);
  return it;
}

}  // namespace tenuto
