#include "plan/make_plan.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "plan/lower.h"
#include "plan/order/order.h"
#include "plan/partition.h"

namespace tenuto {

namespace {

// More ops than this and the plan would not fit a machine that makes it.
constexpr int64_t kMostOps = 100'000'000;

size_t at(int32_t index) { return static_cast<size_t>(index); }

Status check_shape(const Shape& shape) {
  const auto at_least = [](std::string_view name, int32_t value, int32_t least) -> Status {
    if (value >= least) return ok();
    return invalid(cat(name, " is ", value, ": expected at least ", least));
  };
  for (const Status& status :
       {at_least("stages", shape.stages, 1), at_least("pipelines", shape.pipelines, 1),
        at_least("micros", shape.micros, 1), at_least("layers", shape.layers, 1),
        at_least("memory", shape.memory, 0),
        at_least("evaluation_micros", shape.evaluation_micros, 0)}) {
    if (!status.ok()) return status;
  }
  const double ops =
      3.0 * shape.stages * shape.pipelines * shape.micros + 1.0 * shape.stages * shape.pipelines;
  if (ops > static_cast<double>(kMostOps) ||
      1.0 * shape.stages * shape.evaluation_micros > static_cast<double>(kMostOps)) {
    return invalid(
        cat("stages x pipelines x micros makes more than ", kMostOps, " ops: ask for fewer"));
  }
  if (!shape.layer_cost.empty() && shape.layer_cost.size() != at(shape.layers)) {
    return invalid(cat("layer_cost has ", shape.layer_cost.size(), " numbers for ", shape.layers,
                       " layers: give one for each, or none"));
  }
  for (const double cost : shape.layer_cost) {
    if (std::isfinite(cost) && cost >= 0) continue;
    return invalid(cat("layer_cost holds ", cost, ": expected finite numbers from 0"));
  }
  return ok();
}

Error unknown_order(const std::string& name) {
  std::vector<std::string_view> names;
  std::string all;
  for (const OrderCard& card : order_cards()) {
    names.push_back(card.name);
    all += (all.empty() ? "" : ", ") + card.name;
  }
  const std::string near = nearest(name, names.data(), names.size());
  return invalid(cat("order '", name, "' is not known",
                     near.empty() ? std::string() : cat(", did you mean ", near, "?"),
                     " (known: ", all, ")"));
}

Result<std::vector<Stage>> make_stages(const Shape& shape) {
  const std::vector<double> cost =
      shape.layer_cost.empty() ? std::vector<double>(at(shape.layers), 1.0) : shape.layer_cost;
  const auto cuts = partition(cost, shape.stages);
  if (!cuts.ok()) return cuts.error();
  std::vector<Stage> stages;
  for (int32_t s = 0; s < shape.stages; ++s) {
    Stage stage{cuts.value()[at(s)], cuts.value()[at(s) + 1], {}};
    for (int32_t p = 0; p < shape.pipelines; ++p) {
      stage.holders.push_back({p * shape.stages + s});
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

// What the list asks of a worker: micro-batches held at most, and forwards before the first
// backward.
Limit limit_of(const std::vector<Op>& list) {
  Limit limit;
  int32_t held = 0;
  bool warm = true;
  for (const Op& op : list) {
    if (op.kind == OpKind::Forward) {
      limit.micros = std::max(limit.micros, ++held);
      if (warm) ++limit.warm_up;
    }
    if (op.kind == OpKind::BackwardWeight) --held;
    if (op.kind == OpKind::BackwardInput) warm = false;
  }
  return limit;
}

// Numbers the positions of each pipeline: pipelines take turns, so that one order, the micro-batch
// number, is the same everywhere whoever runs what.
Schedule make_compute(const Shape& shape, OrderMaker make) {
  Schedule schedule;
  schedule.stage_count = shape.stages;
  schedule.micro_count = shape.micros * shape.pipelines;
  schedule.lists.resize(at(shape.stages) * at(shape.pipelines));
  for (int32_t s = 0; s < shape.stages; ++s) {
    const std::vector<Slot> slots = make(s, shape.stages, shape.micros);
    for (int32_t p = 0; p < shape.pipelines; ++p) {
      std::vector<Op>& list = schedule.lists[at(p * shape.stages + s)];
      for (const Slot& slot : slots) {
        Op op;
        op.kind = slot.kind;
        op.stage = {s};
        op.micro = {slot.position * shape.pipelines + p};
        list.push_back(op);
      }
    }
  }
  return schedule;
}

Schedule make_evaluation(const Shape& shape) {
  Schedule schedule;
  schedule.stage_count = shape.stages;
  schedule.micro_count = shape.evaluation_micros;
  schedule.lists.resize(at(shape.stages) * at(shape.pipelines));
  for (int32_t k = 0; k < shape.evaluation_micros; ++k) {
    for (int32_t s = 0; s < shape.stages; ++s) {
      Op op;
      op.kind = OpKind::Evaluate;
      op.stage = {s};
      op.micro = {shape.micros * shape.pipelines + k};
      schedule.lists[at(k % shape.pipelines * shape.stages + s)].push_back(op);
    }
  }
  insert_messages(schedule);
  return schedule;
}

// Holds the lists to the memory, and keeps under ready dispatch what makes the order that order.
Status set_limits(const Shape& shape, Plan& plan) {
  int32_t least = 0;
  WorkerId where;
  std::vector<Limit> wanted;
  for (size_t worker = 0; worker < plan.schedule.lists.size(); ++worker) {
    wanted.push_back(limit_of(plan.schedule.lists[worker]));
    if (wanted.back().micros <= least) continue;
    least = wanted.back().micros;
    where = {static_cast<int32_t>(worker)};
  }
  if (shape.memory > 0 && least > shape.memory) {
    return Error{Code::Exhausted, Reach::Worker,
                 cat("order ", shape.order, " with ", shape.stages, " stages and ", shape.micros,
                     " micro-batches a pipeline holds up to ", least, " of them at worker ", where,
                     ", and memory allows ", shape.memory, ": raise memory to ", least,
                     " or take another order")};
  }
  if (plan.dispatch == Dispatch::Ready) {
    plan.limits = std::move(wanted);
  } else if (shape.memory > 0) {
    plan.limits.assign(plan.schedule.lists.size(), {shape.memory, 0});
  }
  return ok();
}

}  // namespace

Result<Plan> make_plan(const Shape& shape) {
  if (const Status status = check_shape(shape); !status.ok()) return status.error();
  const OrderMaker make = find_order(shape.order);
  if (make == nullptr) return unknown_order(shape.order);
  auto stages = make_stages(shape);
  if (!stages.ok()) return stages.error();
  Plan plan;
  plan.order = shape.order;
  plan.stages = std::move(stages).value();
  plan.dispatch = shape.dispatch;
  plan.split_backward = shape.split_backward;
  plan.schedule = make_compute(shape, make);
  if (const Status status = set_limits(shape, plan); !status.ok()) return status.error();
  insert_messages(plan.schedule);
  append_update(plan.schedule, plan.stages, shape.tied);
  plan.evaluation = make_evaluation(shape);
  return plan;
}

}  // namespace tenuto
