#include "adapt/layers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
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
      : now_(&now),
        tied_(plan.update.tied),
        stages_(plan.stages),
        runners_(plan.stages.size(), std::vector<WorkerId>(at(plan.schedule.micro_count))) {
    for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
      for (const Op& op : plan.schedule.lists[w]) {
        if (op.kind != OpKind::Forward) continue;
        runners_[at(op.stage.value)][at(op.micro.value)] = {static_cast<int32_t>(w)};
      }
    }
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

Result<Duration> step_time(const Plan& plan, const Model& model, const Cluster& now) {
  PriceOptions whole;
  whole.lower_bound = false;
  whole.staggered = plan.update.staggered;
  const auto priced = price(plan, model, now, whole);
  if (!priced.ok()) return priced.error();
  return priced.value().period;
}

std::optional<Plan> plan_of(const Plan& plan, const Layout& layout) {
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : layout.stages()) holders.push_back(stage.holders);
  Plan made = with_holders(plan, std::move(holders));
  if (!check(made).ok()) return std::nullopt;
  return made;
}

Duration cost_of(const std::vector<LayerMove>& moves, const Plan& plan, const Model& model,
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

std::string milliseconds(Duration time) { return cat(fixed(to_milliseconds(time), 1), " ms"); }

std::string moved(size_t count) { return cat(count, count == 1 ? " layer" : " layers"); }

// Writes the reason for the decision in words.
void explain(LayerMoves& found, const MoveTerms& terms) {
  if (!found.moves.empty()) {
    found.reason = cat("with ", moved(found.moves.size()), " at other workers a whole step takes ",
                       milliseconds(found.after), " instead of ", milliseconds(found.before),
                       "; the cluster has been as it is for ", terms.lasted,
                       " steps, and the moves cost ", milliseconds(found.cost), " once");
  } else if (found.pays_after >= 0) {
    found.reason =
        cat("moving layers would shorten a step of ", milliseconds(found.before), " to ",
            milliseconds(found.after), ", but costs ", milliseconds(found.cost),
            " once: it pays after ", found.pays_after, " steps in this state of the cluster");
  } else {
    found.reason =
        cat("no move of layers shortens a step by ", fixed(100 * terms.least_gain, 0), " %");
  }
}

}  // namespace

Result<LayerMoves> find_layer_moves(const Plan& plan, const Model& model, const Cluster& now,
                                    const MoveTerms& terms) {
  const auto before = step_time(plan, model, now);
  if (!before.ok()) return before.error();
  LayerMoves best;
  best.before = best.after = before.value();
  const int64_t steps = std::min(terms.lasted, terms.left);
  int64_t most = 0;  // nanoseconds that the best moves save
  LayerMoves later;  // of the moves that do not pay now, those that pay soonest
  Layout layout(plan, model, now);
  for (size_t i = 0; i < kStepsPerLayer * plan.stages.size(); ++i) {
    Step step(layout);
    step.try_all(layout);
    if (!step.best()) break;
    layout = *step.best();
    std::optional<Plan> made = plan_of(plan, layout);
    if (!made) continue;
    const auto after = step_time(*made, model, now);
    if (!after.ok()) continue;
    const Duration gain = before.value() - after.value();
    const double least = terms.least_gain * static_cast<double>(before.value().count());
    if (static_cast<double>(gain.count()) < std::max(least, 1.0)) continue;
    LayerMoves found;
    found.moves = moves_between(plan.stages, layout.stages());
    found.before = before.value();
    found.after = after.value();
    found.cost = cost_of(found.moves, plan, model, now);
    const int64_t saved = gain.count() * steps - found.cost.count();
    const int64_t pays_after = found.cost.count() / gain.count() + 1;
    if (saved > most) {
      most = saved;
      best = std::move(found);
      best.plan = std::move(*made);
    } else if (later.pays_after < 0 || pays_after < later.pays_after) {
      later = {{}, {}, found.before, found.after, found.cost, pays_after, {}};
    }
  }
  if (best.moves.empty() && later.pays_after >= 0) best = std::move(later);
  explain(best, terms);
  return best;
}

}  // namespace tenuto
