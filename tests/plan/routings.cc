#include "plan/routings.h"

#include <algorithm>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

WorkerId any_of(const std::vector<WorkerId>& workers, Random& random) {
  return workers[static_cast<size_t>(random.below(static_cast<int64_t>(workers.size())))];
}

}  // namespace

std::vector<bool> draw_alive(const Plan& plan, double chance, Random& random) {
  std::vector<bool> alive;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    alive.push_back(static_cast<double>(random.below(1000)) < 1000 * chance);
  }
  for (const Stage& stage : plan.stages) {
    const auto lives = [&](WorkerId holder) { return alive[at(holder.value)]; };
    if (std::none_of(stage.holders.begin(), stage.holders.end(), lives)) {
      alive[at(any_of(stage.holders, random).value)] = true;
    }
  }
  return alive;
}

Work draw_work(const Plan& plan, const std::vector<bool>& alive, Random& random) {
  Work work;
  work.lists.resize(plan.schedule.lists.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    auto& holders = work.holders.emplace_back();
    for (const WorkerId holder : plan.stages[s].holders) {
      if (alive[at(holder.value)]) holders.push_back(holder);
    }
    const bool one_for_all = random.below(8) == 0;
    const WorkerId one = any_of(holders, random);
    for (int32_t m = 0; m < plan.schedule.micro_count; ++m) {
      const WorkerId home = holders[at(m) % holders.size()];
      const WorkerId drawn = random.below(2) == 0 ? home : any_of(holders, random);
      const WorkerId owner = one_for_all ? one : drawn;
      for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
        Op op;
        op.kind = kind;
        op.stage = {static_cast<int32_t>(s)};
        op.micro = {m};
        work.lists[at(owner.value)].push_back(op);
      }
    }
  }
  return work;
}

}  // namespace tenuto
