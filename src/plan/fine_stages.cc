#include "plan/fine_stages.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/contains.h"
#include "base/text.h"
#include "plan/copies.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Replaces each compute op of a list by one op for each layer of its stage.
std::vector<Op> divide(const std::vector<Op>& list, const std::vector<Stage>& stages) {
  const int32_t first = stages.front().layer_first;
  std::vector<Op> fine;
  for (const Op& op : list) {
    if (is_message(op) || !has_micro(op)) continue;
    const Stage& stage = stages[at(op.stage.value)];
    const bool back = op.kind == OpKind::BackwardInput || op.kind == OpKind::BackwardWeight;
    const int32_t count = stage.layer_end - stage.layer_first;
    for (int32_t i = 0; i < count; ++i) {
      Op part = op;
      part.stage = {(back ? stage.layer_end - 1 - i : stage.layer_first + i) - first};
      fine.push_back(part);
    }
  }
  return fine;
}

// The limits for the divided list `fine`; `coarse` are those of the list before. The worker had
// `held` stages, which became `divided` new ones. A memory limit counts parts of a micro-batch, one
// for each stage. All its numbers are multiplied so that the parts stay whole numbers.
Limit divide(const Limit& coarse, const std::vector<Op>& fine, int64_t held, int64_t divided) {
  const Limit all = limit_of(fine);
  Limit limit;
  if (coarse.micros > 0) limit.micros = all.micros;
  if (coarse.warm_up > 0) limit.warm_up = all.warm_up;
  if (coarse.memory.most == 0 || held == 0) return limit;
  limit.memory = {coarse.memory.most * divided, coarse.memory.whole * held,
                  coarse.memory.late * held};
  // If stages have unequal numbers of layers, the new list may hold more parts at once.
  limit.memory.most = std::max(limit.memory.most, peak_of(fine, limit.memory));
  return limit;
}

// The all-reduces of the new stages: each one has that of the stage that it comes from.
Summings divide(const Summings& coarse, const std::vector<Stage>& stages) {
  const int32_t first = stages.front().layer_first;
  Summings fine;
  for (const auto& [of, summing] : coarse) {
    if (of.size() > 1) {  // a weight that the first and the last stage share
      fine[{{0}, {stages.back().layer_end - 1 - first}}] = summing;
      continue;
    }
    const Stage& stage = stages[at(of.front().value)];
    for (int32_t layer = stage.layer_first; layer < stage.layer_end; ++layer) {
      fine[{{layer - first}}] = summing;
    }
  }
  return fine;
}

// Stages of a plan that become one, [first, end).
struct Merged {
  int32_t first = 0, end = 0;
};

std::vector<Merged> merged_stages(const Plan& plan) {
  const auto runners = runners_of(plan);
  std::vector<Merged> all;
  for (int32_t s = 0; s < std::ssize(plan.stages); ++s) {
    const Stage& stage = plan.stages[at(s)];
    const bool joins = s > 0 && stage.holders == plan.stages[at(s - 1)].holders &&
                       stage.recompute == plan.stages[at(s - 1)].recompute &&
                       runners[at(s)] == runners[at(s - 1)];
    if (joins) {
      all.back().end = s + 1;
    } else {
      all.push_back({s, s + 1});
    }
  }
  return all;
}

// Keeps one op of those that the merged stages of a micro-batch have: of the stage at which the
// micro-batch arrives.
std::vector<Op> unite(const std::vector<Op>& list, const std::vector<Merged>& stages) {
  std::vector<Op> coarse;
  for (const Op& op : list) {
    if (is_message(op) || !has_micro(op)) continue;
    const auto of = std::find_if(stages.begin(), stages.end(),
                                 [&](const Merged& merged) { return op.stage.value < merged.end; });
    const bool back = op.kind == OpKind::BackwardInput || op.kind == OpKind::BackwardWeight;
    if (op.stage.value != (back ? of->end - 1 : of->first)) continue;
    Op whole = op;
    whole.stage = {static_cast<int32_t>(of - stages.begin())};
    coarse.push_back(whole);
  }
  return coarse;
}

// The limits for the united list `coarse`, whose worker had `held` stages and now has one.
Limit unite(const Limit& fine, const std::vector<Op>& coarse, int64_t held) {
  const Limit all = limit_of(coarse);
  Limit limit;
  if (fine.micros > 0) limit.micros = all.micros;
  if (fine.warm_up > 0) limit.warm_up = all.warm_up;
  if (fine.memory.most == 0 || held == 0) return limit;
  limit.memory = {fine.memory.most, fine.memory.whole * held, fine.memory.late * held};
  const int64_t unit = std::gcd(limit.memory.most, std::gcd(limit.memory.whole, limit.memory.late));
  limit.memory = {limit.memory.most / unit, limit.memory.whole / unit, limit.memory.late / unit};
  return limit;
}

// The all-reduces of united stages: each has that of its first stage.
Summings unite(const Summings& fine, const std::vector<Merged>& stages) {
  Summings coarse;
  for (const auto& [of, summing] : fine) {
    if (of.size() > 1) {
      coarse[{{0}, {static_cast<int32_t>(stages.size()) - 1}}] = summing;
      continue;
    }
    for (size_t s = 0; s < stages.size(); ++s) {
      if (of.front().value == stages[s].first) coarse[{{static_cast<int32_t>(s)}}] = summing;
    }
  }
  return coarse;
}

bool share_a_holder(const Stage& one, const Stage& other) {
  return std::any_of(one.holders.begin(), one.holders.end(),
                     [&](WorkerId holder) { return holds(other, holder); });
}

}  // namespace

Result<Plan> with_fine_stages(const Plan& plan) {
  const auto layers = [](const Stage& stage) { return stage.layer_end - stage.layer_first; };
  if (std::all_of(plan.stages.begin(), plan.stages.end(),
                  [&](const Stage& stage) { return layers(stage) == 1; })) {
    return plan;
  }
  if (plan.update.tied && share_a_holder(plan.stages.front(), plan.stages.back())) {
    return Error{Code::Infeasible, Reach::Job,
                 "the first and the last layer share a weight, and a worker holds both: layers can "
                 "be stages of their own only on several workers"};
  }
  Plan fine;
  fine.order = plan.order;
  fine.dispatch = plan.dispatch;
  fine.split_backward = plan.split_backward;
  fine.update = plan.update;
  for (const Stage& stage : plan.stages) {
    for (int32_t layer = stage.layer_first; layer < stage.layer_end; ++layer) {
      fine.stages.push_back({layer, layer + 1, stage.holders, stage.recompute});
    }
  }
  const auto count = static_cast<int32_t>(fine.stages.size());
  fine.schedule.stage_count = count;
  fine.schedule.micro_count = plan.schedule.micro_count;
  fine.schedule.all_reduce = plan.schedule.all_reduce;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    fine.schedule.lists.push_back(divide(plan.schedule.lists[w], plan.stages));
    if (plan.limits.empty()) continue;
    const WorkerId worker{static_cast<int32_t>(w)};
    fine.limits.push_back(divide(plan.limits[w], fine.schedule.lists[w],
                                 std::ssize(stages_of(plan.stages, worker)),
                                 std::ssize(stages_of(fine.stages, worker))));
  }
  insert_messages(fine.schedule);
  append_update(fine, divide(summings_of(plan.schedule), plan.stages));
  if (plan.evaluation == Schedule{}) return fine;
  fine.evaluation.stage_count = count;
  fine.evaluation.micro_count = plan.evaluation.micro_count;
  for (const auto& list : plan.evaluation.lists) {
    fine.evaluation.lists.push_back(divide(list, plan.stages));
  }
  insert_messages(fine.evaluation);
  return fine;
}

std::optional<Plan> with_coarse_stages(const Plan& plan) {
  const Copies copies = copies_in(plan);
  for (const auto& of : copies) {
    if (!of.empty()) return std::nullopt;
  }
  const std::vector<Merged> merged = merged_stages(plan);
  Plan coarse;
  coarse.order = plan.order;
  coarse.dispatch = plan.dispatch;
  coarse.split_backward = plan.split_backward;
  coarse.update = plan.update;
  for (const Merged& of : merged) {
    const Stage& first = plan.stages[at(of.first)];
    coarse.stages.push_back(
        {first.layer_first, plan.stages[at(of.end - 1)].layer_end, first.holders, first.recompute});
  }
  const auto count = static_cast<int32_t>(merged.size());
  coarse.schedule.stage_count = count;
  coarse.schedule.micro_count = plan.schedule.micro_count;
  coarse.schedule.all_reduce = plan.schedule.all_reduce;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (stages_of(coarse.stages, worker).size() > 1) return std::nullopt;
    coarse.schedule.lists.push_back(unite(plan.schedule.lists[w], merged));
    if (plan.limits.empty()) continue;
    coarse.limits.push_back(unite(plan.limits[w], coarse.schedule.lists[w],
                                  std::ssize(stages_of(plan.stages, worker))));
  }
  insert_messages(coarse.schedule);
  append_update(coarse, unite(summings_of(plan.schedule), merged));
  if (plan.evaluation == Schedule{}) return coarse;
  coarse.evaluation.stage_count = count;
  coarse.evaluation.micro_count = plan.evaluation.micro_count;
  for (const auto& list : plan.evaluation.lists) {
    coarse.evaluation.lists.push_back(unite(list, merged));
  }
  insert_messages(coarse.evaluation);
  return coarse;
}

}  // namespace tenuto
