#include "adapt/layers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/check.h"
#include "plan/routed.h"
#include "sim/price.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// A layer that moves sends this many times the bytes of its parameters: the parameters themselves
// and the two moments that an optimizer keeps.
constexpr int64_t kStateShare = 3;
// The search takes at most this many steps for each layer. It prices the plan after each step.
constexpr size_t kStepsPerLayer = 2;

// Which workers hold each stage, and which worker runs each micro-batch of it, as layers move.
class Layout {
 public:
  Layout(const Plan& plan, const Model& model, const Cluster& now)
      : now_(&now), tied_(plan.update.tied), stages_(plan.stages), runners_(runners_of(plan)) {
    for (const Stage& stage : stages_) {
      const StageCost cost = stage_cost(model, stage);
      times_.push_back(cost.forward + cost.backward_input + cost.backward_weight);
    }
  }

  const std::vector<Stage>& stages() const { return stages_; }

  // The compute times of all workers, the longest first. A layout is better than another one if its
  // list is smaller, compared entry by entry.
  std::vector<Duration> loads() const {
    std::vector<Duration> work(now_->workers.size());
    for (size_t s = 0; s < runners_.size(); ++s) {
      for (const WorkerId runner : runners_[s]) work[at(runner.value)] += times_[s];
    }
    for (size_t w = 0; w < work.size(); ++w) work[w] = at_speed(work[w], now_->workers[w].speed);
    std::sort(work.rbegin(), work.rend());
    return work;
  }

  // The workers that may take `stage` from `donor`. Each one runs some of the donor's micro-batches
  // in the neighbouring stage in direction `way`, and does not hold `stage` yet. The worker that
  // shares most micro-batches comes first.
  std::vector<WorkerId> receivers(WorkerId donor, int32_t stage, int32_t way) const {
    const int32_t beside = stage + way;
    if (beside < 0 || beside >= std::ssize(stages_)) return {};
    std::map<WorkerId, int32_t> common;
    for (size_t m = 0; m < runners_[at(stage)].size(); ++m) {
      if (runners_[at(stage)][m] == donor) ++common[runners_[at(beside)][m]];
    }
    std::vector<WorkerId> all;
    for (const auto& [worker, micros] : common) {
      if (worker != donor && may_take(worker, stage)) all.push_back(worker);
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](WorkerId a, WorkerId b) { return common[a] > common[b]; });
    return all;
  }

  // The layers that `donor` can give in direction `way`: those whose neighbour in that direction is
  // not held by the donor. None if the donor holds one layer only.
  std::vector<int32_t> edges(WorkerId donor, int32_t way) const {
    const std::vector<StageId> held = stages_of(stages_, donor);
    std::vector<int32_t> all;
    if (held.size() < 2) return all;
    for (const StageId stage : held) {
      const int32_t beside = stage.value + way;
      if (beside < 0 || beside >= std::ssize(stages_)) continue;
      if (!holds(stages_[at(beside)], donor) && runs(donor, stage.value)) {
        all.push_back(stage.value);
      }
    }
    return all;
  }

  void move(int32_t stage, WorkerId from, WorkerId to) {
    move_layers(stages_, {{{stage}, from, to}});
    for (WorkerId& runner : runners_[at(stage)]) {
      if (runner == from) runner = to;
    }
  }

  std::vector<WorkerId> workers() const {
    std::set<WorkerId> all;
    for (const Stage& stage : stages_) all.insert(stage.holders.begin(), stage.holders.end());
    return {all.begin(), all.end()};
  }

 private:
  bool runs(WorkerId worker, int32_t stage) const {
    const auto& all = runners_[at(stage)];
    return std::find(all.begin(), all.end(), worker) != all.end();
  }
  bool may_take(WorkerId worker, int32_t stage) const {
    if (holds(stages_[at(stage)], worker)) return false;
    const auto last = static_cast<int32_t>(stages_.size()) - 1;
    const bool end = stage == 0 || stage == last;
    return !(tied_ && end && holds(stages_[at(last - stage)], worker));
  }

  const Cluster* now_;
  bool tied_;
  std::vector<Stage> stages_;
  std::vector<std::vector<WorkerId>> runners_;  // by stage and micro-batch
  std::vector<Duration> times_;                 // of one micro-batch, by stage
};

// The best layout that one step of the search can reach.
class Step {
 public:
  explicit Step(const Layout& from) : best_loads_(from.loads()) {}

  // The donor gives a layer in direction `way`, then the receiver may give one on, and so on.
  void try_chain(Layout layout, WorkerId donor, int32_t way, size_t length) {
    for (const int32_t stage : layout.edges(donor, way)) {
      const auto receivers = layout.receivers(donor, stage, way);
      for (const WorkerId receiver : receivers) {
        Layout next = layout;
        next.move(stage, donor, receiver);
        consider(next);
        if (length > 1) try_chain(std::move(next), receiver, way, length - 1);
        if (length < full_) break;  // only the first donor tries all receivers
      }
      if (length < full_) break;
    }
  }
  void try_all(const Layout& from) {
    const std::vector<WorkerId> workers = from.workers();
    full_ = workers.size();
    for (const WorkerId donor : workers) {
      for (const int32_t way : {-1, 1}) try_chain(from, donor, way, full_);
    }
  }
  // None if no step of the search makes the layout better.
  const std::optional<Layout>& best() const { return best_; }

 private:
  void consider(const Layout& layout) {
    std::vector<Duration> loads = layout.loads();
    if (loads >= best_loads_) return;
    best_loads_ = std::move(loads);
    best_.emplace(layout);
  }

  size_t full_ = 0;
  std::vector<Duration> best_loads_;
  std::optional<Layout> best_;
};

std::optional<Plan> plan_of(const Plan& plan, const Layout& layout) {
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : layout.stages()) holders.push_back(stage.holders);
  Plan made = with_holders(plan, std::move(holders));
  if (!check(made).ok()) return std::nullopt;
  return made;
}

// The layout of a plan; nothing when its step is no shorter than `before`, or it cannot run.
std::optional<LayerLayout> layout_of(Plan made, const Plan& plan, const Model& model,
                                     const Cluster& now, Duration before) {
  const auto step = whole_step_time(made, model, now);
  if (!step.ok() || step.value() >= before) return std::nullopt;
  LayerLayout found{moves_between(plan.stages, made.stages), std::move(made), step.value(), {}};
  found.cost = cost_of_moves(found.moves, plan, model, now);
  return found;
}

// The workers that are slow, or at the end of a link with a delay of its own, ascending.
std::set<WorkerId> troubled_workers(const Plan& plan, const Cluster& now) {
  std::set<WorkerId> all;
  for (const Stage& stage : plan.stages) {
    for (const WorkerId holder : stage.holders) {
      if (now.workers[at(holder.value)].speed != 1) all.insert(holder);
    }
  }
  for (const auto& [ends, link] : now.exceptions) {
    for (const WorkerId worker : {ends.first, ends.second}) {
      if (!stages_of(plan.stages, worker).empty()) all.insert(worker);
    }
  }
  return all;
}

// True when no worker would hold a stage that it holds already, during the move or after it.
bool may_swap(const Plan& plan, WorkerId a, WorkerId b) {
  const bool tied = plan.update.tied;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (holds(plan.stages[s], a) && holds(plan.stages[s], b)) return false;
  }
  const Stage& first = plan.stages.front();
  const Stage& last = plan.stages.back();
  return !tied || !((holds(first, a) && holds(last, b)) || (holds(first, b) && holds(last, a)));
}

}  // namespace

Result<std::vector<LayerLayout>> find_layer_layouts(const Plan& plan, const Model& model,
                                                    const Cluster& now) {
  const auto before = whole_step_time(plan, model, now);
  if (!before.ok()) return before.error();
  std::vector<LayerLayout> all;
  Layout layout(plan, model, now);
  for (size_t i = 0; i < kStepsPerLayer * plan.stages.size(); ++i) {
    Step step(layout);
    step.try_all(layout);
    if (!step.best()) break;
    layout = *step.best();
    std::optional<Plan> made = plan_of(plan, layout);
    if (!made) continue;
    auto found = layout_of(std::move(*made), plan, model, now, before.value());
    if (found) all.push_back(std::move(*found));
  }
  return all;
}

Result<std::vector<LayerLayout>> find_swaps(const Plan& plan, const Model& model,
                                            const Cluster& now, int32_t most) {
  const auto before = whole_step_time(plan, model, now);
  if (!before.ok()) return before.error();
  std::vector<LayerLayout> all;
  std::set<std::pair<WorkerId, WorkerId>> tried;
  for (const WorkerId troubled : troubled_workers(plan, now)) {
    for (const WorkerId other : Layout(plan, model, now).workers()) {
      const auto pair = std::minmax(troubled, other);
      if (troubled == other || !may_swap(plan, troubled, other) || !tried.insert(pair).second) {
        continue;
      }
      if (std::ssize(tried) > most) return all;
      Plan made = with_swapped(plan, troubled, other);
      if (!check(made).ok()) continue;
      auto found = layout_of(std::move(made), plan, model, now, before.value());
      if (found) all.push_back(std::move(*found));
    }
  }
  return all;
}

Duration cost_of_moves(const std::vector<LayerMove>& moves, const Plan& plan, const Model& model,
                       const Cluster& now) {
  std::map<WorkerId, Duration> sends;
  for (const LayerMove& move : moves) {
    const Stage& stage = plan.stages[at(move.stage.value)];
    int64_t bytes = 0;
    for (int32_t layer = stage.layer_first; layer < stage.layer_end; ++layer) {
      bytes += kStateShare * model.layers[at(layer)].parameters.count;
    }
    const Link link = now.link(move.from, move.to);
    sends[move.from] += link.latency + transfer_time({bytes}, link.bytes_per_second);
  }
  Duration longest{};  // all donors send in parallel
  for (const auto& [donor, time] : sends) longest = std::max(longest, time);
  return longest;
}

}  // namespace tenuto
