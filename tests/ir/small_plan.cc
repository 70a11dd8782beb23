#include "ir/small_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/lower.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

// Stages and holders, no lists yet.
Plan frame_of(const SmallKind& kind) {
  Plan plan;
  plan.split_backward = true;
  plan.order = "small";
  plan.schedule.stage_count = kind.workers * kind.chunks;
  plan.schedule.micro_count = kind.micros;
  plan.schedule.lists.resize(at(kind.pipelines * kind.workers));
  for (int32_t s = 0; s < plan.schedule.stage_count; ++s) {
    Stage stage{s, s + 1, {}};
    for (int32_t p = 0; p < kind.pipelines; ++p) {
      stage.holders.push_back({p * kind.workers + s % kind.workers});
    }
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

// Draws the owner of each micro-batch at each stage; most stay in their pipeline.
std::vector<std::vector<WorkerId>> draw_owners(const Plan& plan, Random& random) {
  std::vector<std::vector<WorkerId>> owners;
  for (const Stage& stage : plan.stages) {
    auto& of_stage = owners.emplace_back();
    const auto holders = static_cast<int64_t>(stage.holders.size());
    for (int32_t m = 0; m < plan.schedule.micro_count; ++m) {
      const int64_t home = m % holders;
      of_stage.push_back(
          stage.holders[static_cast<size_t>(random.below(2) == 0 ? home : random.below(holders))]);
    }
  }
  return owners;
}

// The ops of one kind of one worker: the micro-batches of each stage in `sequence`, the stages
// mixed at random.
std::vector<Op> ops_of_kind(OpKind kind, WorkerId self,
                            const std::vector<std::vector<WorkerId>>& owners,
                            const std::vector<int32_t>& sequence, Random& random) {
  std::vector<std::vector<Op>> of_stage;
  for (size_t s = 0; s < owners.size(); ++s) {
    std::vector<Op> ops;
    for (const int32_t m : sequence) {
      if (owners[s][at(m)] != self) continue;
      Op op;
      op.kind = kind;
      op.stage = {static_cast<int32_t>(s)};
      op.micro = {m};
      ops.push_back(op);
    }
    if (!ops.empty()) of_stage.push_back(std::move(ops));
  }
  // Mostly by micro-batch, forwards down the stages and backwards up; else any mixture of stages.
  const bool mixed = random.below(4) == 0;
  if (kind != OpKind::Forward) std::reverse(of_stage.begin(), of_stage.end());
  std::vector<size_t> next(of_stage.size(), 0);
  std::vector<Op> all;
  for (;;) {
    std::vector<size_t> open;
    for (size_t i = 0; i < of_stage.size(); ++i) {
      if (next[i] < of_stage[i].size()) open.push_back(i);
    }
    if (open.empty()) return all;
    const auto chosen = std::min_element(open.begin(), open.end(), [&](size_t a, size_t b) {
      return of_stage[a][next[a]].micro < of_stage[b][next[b]].micro;
    });
    const size_t stage =
        mixed ? open[static_cast<size_t>(random.below(static_cast<int64_t>(open.size())))]
              : *chosen;
    all.push_back(of_stage[stage][next[stage]++]);
  }
}

Limit draw_limit(const SmallKind& kind, Random& random) {
  Limit limit;
  // With several stages a worker may have fewer slots than stages.
  const auto most = static_cast<int32_t>(kind.chunks == 1 ? 1 + random.below(2)
                                                          : kind.chunks - (random.below(4) == 0) +
                                                                random.below(kind.chunks + 1));
  if (random.below(2) == 0) {
    limit.micros = most;
  } else {
    limit.memory = {int64_t{4} * most + random.below(4), 4, random.below(5)};
  }
  if (random.below(4) == 0) limit.warm_up = static_cast<int32_t>(1 + random.below(2));
  return limit;
}

}  // namespace

Plan small_ready_plan(const SmallKind& kind, MicroOrder order, Random& random) {
  Plan plan = frame_of(kind);
  plan.dispatch = Dispatch::Ready;
  const auto owners = draw_owners(plan, random);
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    std::vector<int32_t> sequence;
    for (int32_t m = 0; m < kind.micros; ++m) sequence.push_back(m);
    if (order == MicroOrder::OfAWorker) shuffle(sequence, random);
    for (const OpKind of : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
      const auto ops = ops_of_kind(of, {static_cast<int32_t>(w)}, owners, sequence, random);
      plan.schedule.lists[w].insert(plan.schedule.lists[w].end(), ops.begin(), ops.end());
    }
    plan.limits.push_back(draw_limit(kind, random));
  }
  insert_messages(plan.schedule);
  append_update(plan);
  return plan;
}

Plan small_listed_plan(const SmallKind& kind, Random& random) {
  Plan plan = frame_of(kind);
  const auto owners = draw_owners(plan, random);
  // Draw an order of all ops in which each comes after the ops that it needs, and deal it to the
  // workers.
  std::vector<int32_t> done(at(kind.micros), 0);  // ops of each micro-batch
  const int32_t stages = plan.schedule.stage_count, last = 3 * stages - 1;
  std::vector<int32_t> open;
  for (int32_t m = 0; m < kind.micros; ++m) open.push_back(m);
  while (!open.empty()) {
    const auto pick = static_cast<size_t>(random.below(static_cast<int64_t>(open.size())));
    const int32_t m = open[pick];
    // First the forwards down the stages, then both halves of the backward at each stage, going up.
    const int32_t step = done[at(m)]++;
    Op op;
    op.micro = {m};
    op.stage = {step < stages ? step : (last - step) / 2};
    op.kind = step < stages              ? OpKind::Forward
              : (step - stages) % 2 == 0 ? OpKind::BackwardInput
                                         : OpKind::BackwardWeight;
    plan.schedule.lists[at(owners[at(op.stage.value)][at(m)].value)].push_back(op);
    if (step == last) open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  // Swap two ops in about half of the plans.
  for (auto& list : plan.schedule.lists) {
    if (list.size() < 2 ||
        random.below(2 * static_cast<int64_t>(plan.schedule.lists.size())) != 0) {
      continue;
    }
    const auto from = random.below(static_cast<int64_t>(list.size()));
    const auto to = random.below(static_cast<int64_t>(list.size()));
    std::swap(list[static_cast<size_t>(from)], list[static_cast<size_t>(to)]);
  }
  insert_messages(plan.schedule);
  append_update(plan);
  return plan;
}

}  // namespace tenuto
