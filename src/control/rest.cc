#include "control/rest.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "adapt/salvage.h"
#include "base/text.h"
#include "control/commit.h"
#include "control/planning.h"
#include "control/query.h"

namespace tenuto {
namespace {

// What is known of the open step, the one after the committed version.
struct Stock {
  std::vector<Inventory> inventories;  // by worker
  std::vector<bool> alive;
  std::set<int32_t> losses;  // micro-batches whose loss some worker knows
  bool resumable = true;     // all live workers can run what is left of it
  bool begun = false;        // some worker has a value of it, or has taken its optimizer step
  int64_t attempt = -1;      // the newest; values of older attempts are discarded
};

// What the member has of the open step; null: nothing.
const StepInventory* held_by(const State& state, size_t worker) {
  for (const StepInventory& held : state.members[worker].report.held) {
    if (held.step == open_step(state)) return &held;
  }
  return nullptr;
}

Stock stock_of(const State& state, const Plan& plan) {
  Stock stock;
  stock.inventories.resize(plan.schedule.lists.size());
  stock.alive.assign(plan.schedule.lists.size(), false);
  const size_t count = std::min(state.members.size(), stock.alive.size());
  for (size_t w = 0; w < count; ++w) {
    const Member& member = state.members[w];
    if (!member.alive) continue;
    stock.alive[w] = true;
    stock.resumable = stock.resumable && member.report.resumes;
    const StepInventory* held = held_by(state, w);
    if (held == nullptr) continue;
    stock.inventories[w] = held->inventory;
    std::erase_if(stock.inventories[w].stepped, [&](StageId stage) {
      return stage.value < 0 || static_cast<size_t>(stage.value) >= plan.stages.size();
    });
    stock.attempt = std::max(stock.attempt, held->attempt);
    stock.losses.insert(held->losses.begin(), held->losses.end());
  }
  // Values of an older attempt do not count: in it, another plan may have given the worker other
  // work.
  for (size_t w = 0; w < count; ++w) {
    Inventory& inventory = stock.inventories[w];
    const StepInventory* held = stock.alive[w] ? held_by(state, w) : nullptr;
    if (held != nullptr && held->attempt != stock.attempt) inventory.values.clear();
    stock.begun = stock.begun || !inventory.values.empty() || !inventory.stepped.empty();
  }
  return stock;
}

// The micro-batches whose loss no worker knows: not computed yet, or lost with the dead.
std::vector<MicroId> unknown_losses(const Stock& stock, int32_t micros) {
  std::vector<MicroId> unknown;
  for (int32_t m = 0; m < micros; ++m) {
    if (!stock.losses.contains(m)) unknown.push_back({m});
  }
  return unknown;
}

// True when the plan names a live worker as a holder of a stage that it does not hold in State.
bool has_other_holders(const State& state, const Plan& plan) {
  for (size_t s = 0; s < plan.stages.size() && s < state.stages.size(); ++s) {
    for (const WorkerId holder : plan.stages[s].holders) {
      if (member_of(state, holder).alive && !holds(state.stages[s], holder)) return true;
    }
  }
  return false;
}

RestOfStep rest_of(const State& state, Rest rest, int64_t attempt) {
  RestOfStep left{state.epoch, open_step(state), attempt, std::move(rest.plan), {}};
  for (std::vector<Value>& stored : rest.stores) left.parts.push_back({std::move(stored), {}});
  left.parts.resize(left.plan.schedule.lists.size());
  for (const TakenBack& it : rest.back) {
    left.parts[static_cast<size_t>(it.worker.value)].back.push_back(it.stage);
  }
  return left;
}

}  // namespace

DecisionPart find_rest(const State& state) {
  DecisionPart out;
  if (state.committed >= state.stop_at || state.rules.evaluates) return out;
  const auto plan = plan_of(state.planning, open_step(state));
  // If layers were moving under this plan, what donors and receivers computed of the step cannot be
  // used: repeat the whole step.
  if (plan == nullptr || has_other_holders(state, *plan)) return out;
  Stock stock = stock_of(state, *plan);
  if (!stock.begun || !stock.resumable) return out;
  const PlanRequest now = question_of(state, plan, false);
  Result<Remedy> remedy = recover(*plan, stock.inventories, stock.alive, now.model, now.cluster,
                                  unknown_losses(stock, plan->schedule.micro_count));
  out.say(remedy.ok() ? remedy.value().reason : remedy.error().message);
  if (!remedy.ok() || remedy.value().replayed) return out;
  out.edits.add(RestFound{std::make_shared<const RestOfStep>(
      rest_of(state, std::move(remedy.value().rest), stock.attempt))});
  return out;
}

}  // namespace tenuto
