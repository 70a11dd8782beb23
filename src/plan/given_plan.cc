#include "plan/given_plan.h"

#include <algorithm>

#include "base/contains.h"
#include "base/text.h"
#include "ir/text.h"
#include "plan/lower.h"
#include "plan/partition.h"

namespace tenuto {

namespace {

// A plan with more ops would not fit into the machine that makes it.
constexpr double kMostOps = 100'000'000;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The worker whose list has the ops of each stage.
Result<std::vector<WorkerId>> holders_of(const Schedule& lists) {
  std::vector<WorkerId> holders(at(lists.stage_count));
  for (size_t w = 0; w < lists.lists.size(); ++w) {
    for (const Op& op : lists.lists[w]) {
      if (is_message(op)) continue;
      WorkerId& holder = holders[at(op.stage.value)];
      const WorkerId worker{static_cast<int32_t>(w)};
      if (holder.value < 0) holder = worker;
      if (holder == worker) continue;
      return Error{Code::Infeasible, Reach::Job,
                   cat("worker ", worker, " lists ", to_text(op), " and worker ", holder,
                       " lists other ops of stage ", op.stage,
                       ": a stage of one pipeline lies at "
                       "one worker; give all its ops to one of them")};
    }
  }
  for (size_t w = 0; w < lists.lists.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (contains(holders, worker)) continue;
    return Error{Code::Infeasible, Reach::Job,
                 cat("worker ", worker, " lists no op of any stage: drop its list")};
  }
  for (size_t s = 0; s < holders.size(); ++s) {
    if (holders[s].value >= 0) continue;
    return Error{
        Code::Infeasible, Reach::Job,
        cat("nobody lists an op of stage ", s, ": stages are numbered from 0 without gaps")};
  }
  return holders;
}

Result<std::vector<Stage>> make_stages(const std::vector<WorkerId>& holders, int32_t workers,
                                       const Shape& shape) {
  const std::vector<double> cost =
      shape.layer_cost.empty() ? std::vector<double>(at(shape.layers), 1.0) : shape.layer_cost;
  const auto cuts = partition(cost, static_cast<int32_t>(holders.size()));
  if (!cuts.ok()) return cuts.error();
  std::vector<Stage> stages;
  for (size_t s = 0; s < holders.size(); ++s) {
    Stage stage{cuts.value()[s], cuts.value()[s + 1], {}, shape.recompute};
    for (int32_t p = 0; p < shape.pipelines; ++p) {
      stage.holders.push_back({p * workers + holders[s].value});
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

// Pipeline p runs the same lists on its own workers and its own micro-batches.
Schedule copies_of(const Schedule& lists, int32_t pipelines) {
  const auto workers = static_cast<int32_t>(lists.lists.size());
  Schedule all;
  all.stage_count = lists.stage_count;
  all.micro_count = lists.micro_count * pipelines;
  for (int32_t p = 0; p < pipelines; ++p) {
    for (const auto& list : lists.lists) {
      std::vector<Op>& copy = all.lists.emplace_back(list);
      for (Op& op : copy) {
        op.micro = {op.micro.value * pipelines + p};
        if (is_message(op)) op.peer = {p * workers + op.peer.value};
      }
    }
  }
  return all;
}

// Checks the lists against the memory, where each stage of a worker takes an equal share of a
// micro-batch. Under ready dispatch also sets the limits that the lists themselves need.
Status set_limits(const Shape& shape, Plan& plan) {
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const size_t held = stages_of(plan.stages, worker).size();
    const auto stages = static_cast<int32_t>(std::max<size_t>(1, held));
    Limit limit = limit_of(plan.schedule.lists[w]);
    limit.memory = memory_limit_of(shape.memory, stages, shape.late_share);
    const int64_t peak = peak_of(plan.schedule.lists[w], limit.memory);
    if (peak > limit.memory.most) {
      const int64_t whole = limit.memory.whole * stages;
      const int64_t least = (peak + whole - 1) / whole;
      return Error{Code::Exhausted, Reach::Worker,
                   cat("worker ", worker, " holds up to ", least, " micro-batches of ", stages,
                       " stages, and memory allows ", shape.memory, ": raise memory to ", least,
                       " or list backwards sooner")};
    }
    if (plan.dispatch == Dispatch::Listed) limit.micros = limit.warm_up = 0;
    if (plan.dispatch == Dispatch::Ready || shape.memory > 0) plan.limits.push_back(limit);
  }
  return ok();
}

Schedule make_evaluation(const Plan& plan, const Shape& shape) {
  Schedule schedule;
  schedule.stage_count = plan.schedule.stage_count;
  schedule.micro_count = shape.evaluation_micros;
  schedule.lists.resize(plan.schedule.lists.size());
  for (int32_t k = 0; k < shape.evaluation_micros; ++k) {
    for (int32_t s = 0; s < schedule.stage_count; ++s) {
      Op op;
      op.kind = OpKind::Evaluate;
      op.stage = {s};
      op.micro = {plan.schedule.micro_count + k};
      const WorkerId holder = plan.stages[at(s)].holders[at(k % shape.pipelines)];
      schedule.lists[at(holder.value)].push_back(op);
    }
  }
  insert_messages(schedule);
  return schedule;
}

}  // namespace

Result<Plan> make_given_plan(const GivenLists& lists, const Shape& shape) {
  double ops = 0;
  for (const auto& list : lists.schedule.lists) ops += static_cast<double>(list.size());
  if (ops * shape.pipelines > kMostOps ||
      1.0 * lists.schedule.stage_count * shape.evaluation_micros > kMostOps) {
    return invalid(cat(shape.pipelines, " pipelines of these lists and ", shape.evaluation_micros,
                       " held-out micro-batches make more than ", kMostOps, " ops: ask for fewer"));
  }
  if (const Status status = check_all_reduce(shape.all_reduce); !status.ok()) {
    return status.error();
  }
  if (shape.layers < lists.schedule.stage_count) {
    return invalid(cat("the lists have ", lists.schedule.stage_count, " stages and the model ",
                       shape.layers, " layers: every stage needs at least one"));
  }
  const auto holders = holders_of(lists.schedule);
  if (!holders.ok()) return holders.error();
  if (shape.tied && holders.value().size() > 1 &&
      holders.value().front() == holders.value().back()) {
    return invalid(
        cat("worker ", holders.value().front(),
            " holds the first stage and the last, and a tied weight is supported between "
            "two workers only: set model.tied = false or take another schedule"));
  }
  auto stages =
      make_stages(holders.value(), static_cast<int32_t>(lists.schedule.lists.size()), shape);
  if (!stages.ok()) return stages.error();
  Plan plan;
  plan.order = shape.order;
  plan.stages = std::move(stages).value();
  plan.dispatch = shape.dispatch;
  plan.split_backward = shape.split_backward;
  plan.schedule = copies_of(lists.schedule, shape.pipelines);
  if (const Status status = set_limits(shape, plan); !status.ok()) return status.error();
  if (!lists.messages) insert_messages(plan.schedule);
  plan.schedule.all_reduce = shape.all_reduce;
  plan.update = {shape.tied, shape.staggered};
  append_update(plan);
  plan.evaluation = make_evaluation(plan, shape);
  return plan;
}

}  // namespace tenuto
