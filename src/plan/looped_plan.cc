#include "plan/looped_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/make_plan.h"
#include "plan/routed.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

bool computes(const Op& op) {
  return op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput ||
         op.kind == OpKind::BackwardWeight;
}

// The most micro-batches that a list has in flight at once, counted once for each chunk.
int32_t most_begun(const std::vector<Op>& list) {
  int32_t begun = 0, most = 1;
  for (const Op& op : list) {
    if (op.kind == OpKind::Forward) most = std::max(most, ++begun);
    if (op.kind == OpKind::BackwardWeight) --begun;
  }
  return most;
}

}  // namespace

Result<Plan> make_looped_plan(const std::vector<Stage>& stages, int32_t chunks, Dispatch dispatch,
                              const StageShape& shape) {
  const auto count = static_cast<int32_t>(stages.size());
  CHECK(count > 0 && chunks > 0 && count % chunks == 0, "every worker has the same chunks");
  const auto pipelines = static_cast<int32_t>(stages.front().holders.size());
  if (pipelines < 1 || shape.micros % pipelines != 0) {
    return invalid(cat(pipelines, " pipelines for ", shape.micros,
                       " micro-batches: expected a number that divides them"));
  }
  Shape grid;
  grid.stages = count / chunks;
  grid.chunks = chunks;
  grid.pipelines = pipelines;
  grid.micros = shape.micros / pipelines;
  grid.layers = count;
  grid.order = chunks > 1 ? "interleaved" : "1f1b";
  grid.split_backward = shape.split_backward;
  auto ordered = make_plan(grid);
  if (!ordered.ok()) return ordered.error();
  Plan base;
  base.order = grid.order;
  base.dispatch = Dispatch::Ready;
  base.split_backward = shape.split_backward;
  base.update = {shape.tied, shape.staggered};
  base.stages = stages;
  base.limits.resize(at(shape.workers));
  base.schedule.stage_count = count;
  base.schedule.micro_count = shape.micros;
  base.schedule.all_reduce = shape.all_reduce;
  base.schedule.lists.resize(at(shape.workers));
  if (shape.evaluation_micros > 0) {
    base.evaluation.stage_count = count;
    base.evaluation.micro_count = shape.evaluation_micros;
    base.evaluation.lists.resize(at(shape.workers));
  }
  Work work;
  work.lists.resize(at(shape.workers));
  for (const Stage& stage : stages) work.holders.push_back(stage.holders);
  for (int32_t p = 0; p < pipelines; ++p) {
    for (int32_t i = 0; i < grid.stages; ++i) {
      const size_t worker = at(stages[at(i)].holders[at(p)].value);
      for (const Op& op : ordered.value().schedule.lists[at(p * grid.stages + i)]) {
        if (computes(op)) work.lists[worker].push_back(op);
      }
      base.limits[worker].micros = most_begun(work.lists[worker]);
    }
  }
  Plan plan = with_work(base, std::move(work));
  plan.dispatch = dispatch;
  if (const Status right = check(plan); !right.ok()) {
    return Error{Code::Infeasible, Reach::Job, right.error().message};
  }
  return plan;
}

}  // namespace tenuto
