#include "plan/copies.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/contains.h"
#include "base/text.h"
#include "plan/lower.h"

namespace tenuto {
namespace {

bool any_holds_two(const Plan& plan) {
  std::vector<bool> holds(plan.schedule.lists.size());
  for (const Stage& stage : plan.stages) {
    for (const WorkerId holder : stage.holders) {
      const auto worker = static_cast<size_t>(holder.value);
      if (holds[worker]) return true;
      holds[worker] = true;
    }
  }
  return false;
}

// For each worker, the stages whose forwards it runs.
std::vector<std::set<StageId>> stages_run(const Plan& plan) {
  std::vector<std::set<StageId>> run(plan.schedule.lists.size());
  for (size_t w = 0; w < run.size(); ++w) {
    for (const Op& op : plan.schedule.lists[w]) {
      if (op.kind == OpKind::Forward) run[w].insert(op.stage);
    }
  }
  return run;
}

}  // namespace

Copies copies_in(const Plan& plan) {
  Copies copies(plan.stages.size());
  if (!any_holds_two(plan)) return copies;  // without reading the lists
  const auto run = stages_run(plan);
  for (size_t s = 0; s < copies.size(); ++s) {
    const StageId stage{static_cast<int32_t>(s)};
    for (const WorkerId holder : plan.stages[s].holders) {
      const auto& of = run[static_cast<size_t>(holder.value)];
      if (!of.empty() && !of.contains(stage)) copies[s].push_back(holder);
    }
  }
  return copies;
}

Plan with_copies(Plan plan, const Copies& copies) {
  CHECK(copies.size() == plan.stages.size(), "copies for each stage");
  for (size_t s = 0; s < copies.size(); ++s) {
    auto& holders = plan.stages[s].holders;
    holders.insert(holders.end(), copies[s].begin(), copies[s].end());
  }
  return with_update_of_holders(std::move(plan));
}

Plan without_copies(Plan plan) {
  const Copies copies = copies_in(plan);
  for (size_t s = 0; s < copies.size(); ++s) {
    std::erase_if(plan.stages[s].holders, [&](WorkerId of) { return contains(copies[s], of); });
  }
  return with_update_of_holders(std::move(plan));
}

Result<Copies> choose_copies(const Plan& plan, const std::vector<int32_t>& places) {
  const auto count = static_cast<int32_t>(plan.stages.size());
  Copies copies(plan.stages.size());
  const auto place_of = [&](WorkerId worker) {
    return places.empty() ? 0 : places[static_cast<size_t>(worker.value)];
  };
  const auto keeps = [&](int32_t stage, WorkerId worker) {
    return holds(plan.stages[static_cast<size_t>(stage)], worker) ||
           contains(copies[static_cast<size_t>(stage)], worker);
  };
  std::vector<int32_t> kept(plan.schedule.lists.size(), 0);
  for (int32_t s = 0; s < count; ++s) {
    const auto& holders = plan.stages[static_cast<size_t>(s)].holders;
    std::set<int32_t> taken;
    for (const WorkerId holder : holders) taken.insert(place_of(holder));
    using Rank = std::tuple<int32_t, bool, int32_t, int32_t>;
    std::optional<std::pair<Rank, WorkerId>> best;
    for (int32_t next = 1; next < count; ++next) {
      const int32_t other = (s + next) % count;
      const auto& all = plan.stages[static_cast<size_t>(other)].holders;
      for (size_t i = 0; i < all.size(); ++i) {
        // A worker that holds one end of a tied weight must not hold the other end too.
        const int32_t end = count - 1 - s;
        if (plan.update.tied && (s == 0 || end == 0) && keeps(end, all[i])) continue;
        const auto away = static_cast<int32_t>(
            (i + all.size() - static_cast<size_t>(s) % all.size()) % all.size());
        const Rank rank{kept[static_cast<size_t>(all[i].value)], taken.contains(place_of(all[i])),
                        next, away};
        if (!best || rank < best->first) best = {rank, all[i]};
      }
    }
    if (!best) {
      return Error{Code::Infeasible, Reach::Job,
                   cat("no worker can keep a copy of stage ", s, ": ",
                       count == 1 ? "the plan has only one stage"
                                  : "the first and the last stage share a weight, and no worker "
                                    "may hold both")};
    }
    copies[static_cast<size_t>(s)].push_back(best->second);
    ++kept[static_cast<size_t>(best->second.value)];
  }
  return copies;
}

}  // namespace tenuto
