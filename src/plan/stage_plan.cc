#include "plan/stage_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {

namespace {

// As the keys of a job (world/keys.cc) and make_plan().
constexpr int32_t kMostWorkers = 16384, kMostMicros = 1'000'000;
constexpr int64_t kMostOps = 100'000'000;

size_t at(int32_t index) { return static_cast<size_t>(index); }

Status check_holders(const std::vector<Stage>& stages, const StageShape& shape) {
  std::vector<int32_t> stage_of(at(shape.workers), -1);
  for (size_t s = 0; s < stages.size(); ++s) {
    const std::vector<WorkerId>& holders = stages[s].holders;
    if (holders.empty()) return invalid(cat("stage ", s, " has no holder: give it a worker"));
    if (holders.size() > at(shape.micros)) {
      return invalid(cat("stage ", s, " has ", holders.size(), " holders for ", shape.micros,
                         shape.micros == 1 ? " micro-batch" : " micro-batches",
                         ": a holder without a micro-batch does nothing; ask for more "
                         "micro-batches or fewer holders"));
    }
    for (const WorkerId holder : holders) {
      if (holder.value < 0 || holder.value >= shape.workers) {
        return invalid(cat("stage ", s, " is held by worker ", holder, ": expected workers 0 to ",
                           shape.workers - 1));
      }
      int32_t& stage = stage_of[at(holder.value)];
      if (stage >= 0) {
        return invalid(cat("worker ", holder, " holds stage ", stage, " and stage ", s,
                           ": a worker holds one stage"));
      }
      stage = static_cast<int32_t>(s);
    }
  }
  return ok();
}

Status check_stages(const std::vector<Stage>& stages, const StageShape& shape) {
  if (stages.empty()) return invalid("a plan needs at least one stage");
  if (shape.workers < 1 || shape.workers > kMostWorkers) {
    return invalid(cat("workers is ", shape.workers, ": expected 1 to ", kMostWorkers));
  }
  if (shape.micros < 1 || shape.micros > kMostMicros) {
    return invalid(cat("micros is ", shape.micros, ": expected 1 to ", kMostMicros));
  }
  if (static_cast<int64_t>(stages.size()) * (3 * int64_t{shape.micros} + 1) > kMostOps) {
    return invalid(cat("stages x micros makes more than ", kMostOps, " ops: ask for fewer"));
  }
  int32_t layer = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].layer_first != layer || stages[s].layer_end <= layer) {
      return invalid(cat("stage ", s, " has layers ", stages[s].layer_first, " to ",
                         stages[s].layer_end, " (end excluded): expected at least one layer, from ",
                         layer, " on"));
    }
    layer = stages[s].layer_end;
  }
  return check_holders(stages, shape);
}

// Deals a stage's micro-batches to its holders, by their speeds: each goes to the holder that would
// end first with everything that it has been given. Returns the place of each micro-batch's holder.
std::vector<size_t> deal_by_speed(const Stage& stage, const StageShape& shape) {
  std::vector<double> cost;  // of one micro-batch
  for (const WorkerId holder : stage.holders) {
    cost.push_back(shape.speed.empty() ? 1 : 1 / shape.speed[at(holder.value)]);
  }
  std::vector<double> load(cost.size(), 0);
  std::vector<size_t> places;
  for (int32_t m = 0; m < shape.micros; ++m) {
    size_t best = 0;
    for (size_t h = 1; h < cost.size(); ++h) {
      if (load[h] + cost[h] < load[best] + cost[best]) best = h;
    }
    load[best] += cost[best];
    places.push_back(best);
  }
  return places;
}

// The ops of one holder that runs these micro-batches: `ahead` forwards, then one backward and one
// forward in turn.
std::vector<Op> list_of(StageId stage, const std::vector<int32_t>& micros, size_t ahead) {
  std::vector<Op> list;
  const auto add = [&](OpKind kind, int32_t micro) {
    Op op;
    op.kind = kind;
    op.stage = stage;
    op.micro = {micro};
    list.push_back(op);
  };
  size_t forwards = 0;
  for (size_t backwards = 0; backwards < micros.size(); ++backwards) {
    while (forwards < micros.size() && forwards < backwards + ahead) {
      add(OpKind::Forward, micros[forwards++]);
    }
    add(OpKind::BackwardInput, micros[backwards]);
    add(OpKind::BackwardWeight, micros[backwards]);
  }
  return list;
}

int32_t in_flight_of(const std::vector<Stage>& stages, const StageShape& shape, size_t stage) {
  if (!shape.in_flight.empty()) return shape.in_flight[stage];
  size_t holders = 0;
  for (size_t s = stage; s < stages.size(); ++s) holders += stages[s].holders.size();
  return static_cast<int32_t>(holders);
}

}  // namespace

Result<Plan> make_stage_plan(const std::vector<Stage>& stages, const StageShape& shape) {
  if (const Status right = check_stages(stages, shape); !right.ok()) return right.error();
  Plan base;
  base.order = "1f1b";
  base.dispatch = Dispatch::Ready;
  base.split_backward = shape.split_backward;
  base.update = {shape.tied, shape.staggered};
  base.stages = stages;
  base.limits.resize(at(shape.workers));
  base.schedule.stage_count = static_cast<int32_t>(stages.size());
  base.schedule.micro_count = shape.micros;
  base.schedule.all_reduce = shape.all_reduce;
  base.schedule.lists.resize(at(shape.workers));
  if (shape.evaluation_micros > 0) {
    base.evaluation.stage_count = base.schedule.stage_count;
    base.evaluation.micro_count = shape.evaluation_micros;
    base.evaluation.lists.resize(at(shape.workers));
  }
  Work work;
  work.lists.resize(at(shape.workers));
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const int32_t in_flight = in_flight_of(stages, shape, s);
    std::vector<std::vector<int32_t>> micros(stage.holders.size());
    const std::vector<size_t> places = deal_by_speed(stage, shape);
    for (int32_t m = 0; m < shape.micros; ++m) micros[places[at(m)]].push_back(m);
    for (size_t h = 0; h < micros.size(); ++h) {
      // A holder's share of what the stage has in flight is its share of the micro-batches.
      const double share = static_cast<double>(micros[h].size()) / shape.micros;
      const auto ahead = static_cast<int32_t>(std::ceil(in_flight * share - 1e-9));
      const size_t worker = at(stage.holders[h].value);
      const int32_t fitting = shape.fitting.empty() ? ahead : shape.fitting[worker];
      const int32_t most = std::max(1, std::min(ahead, fitting));
      work.lists[worker] = list_of({static_cast<int32_t>(s)}, micros[h], static_cast<size_t>(most));
      base.limits[worker].micros = most;
    }
    work.holders.push_back(stage.holders);
  }
  Plan plan = with_work(base, std::move(work));
  if (const Status right = check(plan); !right.ok()) {
    return Error{Code::Infeasible, Reach::Job, right.error().message};
  }
  return plan;
}

Result<Plan> make_lone_plan(int32_t stages, int32_t layers, int32_t micros) {
  if (stages < 1 || layers < 1 || micros < 1 ||
      int64_t{stages} * (3 * int64_t{micros} + 1) > kMostOps) {
    return invalid(cat(stages, " stages of ", layers, " layers and ", micros,
                       " micro-batches: expected at least 1 of each, and at most ", kMostOps,
                       " ops"));
  }
  Plan base;
  base.order = "lone";
  base.split_backward = true;
  base.limits.resize(1);
  base.schedule.stage_count = stages;
  base.schedule.micro_count = micros;
  base.schedule.all_reduce = "ring";
  base.schedule.lists.resize(1);
  Work work;
  work.lists.resize(1);
  for (int32_t s = 0; s < stages; ++s) {
    base.stages.push_back({s * layers, (s + 1) * layers, {{0}}});
    work.holders.push_back({{0}});
  }
  const auto add = [&](OpKind kind, int32_t stage, int32_t micro) {
    Op op;
    op.kind = kind;
    op.stage = {stage};
    op.micro = {micro};
    work.lists[0].push_back(op);
  };
  for (int32_t m = 0; m < micros; ++m) {
    for (int32_t s = 0; s < stages; ++s) add(OpKind::Forward, s, m);
    for (int32_t s = stages - 1; s >= 0; --s) {
      add(OpKind::BackwardInput, s, m);
      add(OpKind::BackwardWeight, s, m);
    }
  }
  Plan plan = with_work(base, std::move(work));
  plan.dispatch = Dispatch::Listed;
  if (const Status right = check(plan); !right.ok()) {
    return Error{Code::Infeasible, Reach::Job, right.error().message};
  }
  return plan;
}

}  // namespace tenuto
