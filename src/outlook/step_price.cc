#include "outlook/step_price.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "base/check.h"
#include "base/longest_time.h"

namespace tenuto::outlook {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Rounded up, so that a price never falls below a bound by rounding.
Duration times(Duration time, double factor) {
  return from_nanoseconds(std::ceil(static_cast<double>(time.count()) * factor));
}

bool has_death(const Pattern& pattern) {
  return std::any_of(pattern.begin(), pattern.end(),
                     [](const Mark& mark) { return mark.kind == TroubleKind::DeadWorker; });
}

double worst_slowdown(const Pattern& pattern) {
  double worst = 1;
  for (const Mark& mark : pattern) {
    if (mark.kind == TroubleKind::SlowWorker) worst = std::max(worst, mark.factor);
  }
  return worst;
}

// `ahead` forwards, then both gradients of one micro-batch and one forward in turn.
Sequence one_f_one_b(int32_t micros, int32_t ahead) {
  const int32_t first = std::min(micros, ahead);
  Sequence sequence(at(first), OpKind::Forward);
  for (int32_t m = 0; m < micros; ++m) {
    sequence.push_back(OpKind::BackwardInput);
    sequence.push_back(OpKind::BackwardWeight);
    if (first + m < micros) sequence.push_back(OpKind::Forward);
  }
  return sequence;
}

// The share of a stage's work that is left to it, 1 with equally many layers.
double share_of(const LayerCounts& layers, int32_t stage, int32_t each) {
  return layers.empty() ? 1 : static_cast<double>(layers[at(stage)]) / each;
}

}  // namespace

StepPrices::StepPrices(const ClusterShape& shape, const StepSetup& setup, const Remedies& remedies,
                       bool memo)
    : shape_(shape), setup_(setup), remedies_(remedies), memo_(memo) {}

std::optional<StepCost> StepPrices::of(const Condition& condition, const LayerCounts& layers) {
  if (!memo_) return compute(condition, layers);
  const auto key = std::pair(condition, layers);
  const auto found = costs_.find(key);
  if (found != costs_.end()) return found->second;
  return costs_.emplace(key, compute(condition, layers)).first->second;
}

std::optional<StepCost> StepPrices::compute(const Condition& condition, const LayerCounts& layers) {
  const auto loads = loads_of(condition);
  if (!loads) return {};
  // Pipelines with the same pattern take equally long, and one without troubles the shortest time.
  StepCost cost{time_of(line_of(*loads, layers, {})), bound_of(*loads, layers)};
  const Pattern* before = nullptr;
  for (const Pattern& pattern : condition) {
    const bool again = before != nullptr && *before == pattern;
    before = &pattern;
    if (again || (!remedies_.reroute && has_death(pattern))) continue;
    cost.time = std::max(cost.time, time_of(line_of(*loads, layers, pattern)));
  }
  return cost;
}

std::optional<StepPrices::Loads> StepPrices::loads_of(const Condition& condition) const {
  return remedies_.reroute ? routed_loads(condition) : whole_loads(condition);
}

std::optional<StepPrices::Loads> StepPrices::routed_loads(const Condition& condition) const {
  std::vector<int64_t> live(at(shape_.stages), shape_.pipelines);
  std::vector<std::vector<double>> slow(at(shape_.stages));
  for (const Pattern& pattern : condition) {
    for (const Mark& mark : pattern) {
      if (mark.kind == TroubleKind::DeadWorker) --live[at(mark.stage)];
      if (mark.kind == TroubleKind::SlowWorker) slow[at(mark.stage)].push_back(mark.factor);
    }
  }
  Loads loads;
  for (int32_t s = 0; s < shape_.stages; ++s) {
    if (live[at(s)] == 0) return {};
    loads.push_back(load_of(live[at(s)], slow[at(s)]));
  }
  return loads;
}

std::optional<StepPrices::Loads> StepPrices::whole_loads(const Condition& condition) const {
  int64_t whole = shape_.pipelines;
  std::vector<double> slow;
  for (const Pattern& pattern : condition) {
    if (has_death(pattern)) {
      --whole;
    } else if (worst_slowdown(pattern) > 1) {
      slow.push_back(worst_slowdown(pattern));
    }
  }
  if (whole == 0) return {};
  return Loads(at(shape_.stages), load_of(whole, slow));
}

// The micro-batches that the busiest of `live` workers (or whole pipelines) runs. If slow ones get
// fewer, those of a healthy one: the least k so that all together run the step's micro-batches
// while a healthy one runs k.
int64_t StepPrices::load_of(int64_t live, const std::vector<double>& slow) const {
  const int64_t all = int64_t{setup_.micros} * shape_.pipelines;
  const int64_t even = (all + live - 1) / live;
  if (!remedies_.rebalance || slow.empty()) return even;
  const auto done = [&](int64_t load) {
    int64_t sum = (live - static_cast<int64_t>(slow.size())) * load;
    for (const double factor : slow) {
      sum += static_cast<int64_t>(std::floor(static_cast<double>(load) / factor));
    }
    return sum;
  };
  int64_t low = even, high = even;
  while (done(high) < all) high *= 2;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (done(middle) >= all) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// How much longer the ops of a pipeline's worker take than its load says.
double StepPrices::slowdown(const Pattern& pattern, int32_t stage) const {
  if (remedies_.rebalance) return 1;
  for (const Mark& mark : pattern) {
    if (mark.stage == stage && mark.kind == TroubleKind::SlowWorker) return mark.factor;
  }
  return 1;
}

// The latency from a stage to the next one. What a dead worker would have run is with its peers.
Duration StepPrices::delay(const Pattern& pattern, int32_t stage) const {
  const Duration cross = std::max(setup_.cross, setup_.link);
  Duration own = setup_.link;
  for (const Mark& mark : pattern) {
    const bool ends_here = mark.stage == stage || mark.stage == stage + 1;
    if (mark.kind == TroubleKind::DeadWorker && ends_here) return cross;
    if (mark.kind == TroubleKind::SlowLink && mark.stage == stage) {
      own = std::max(own, times(setup_.link, mark.factor));
    }
  }
  const bool avoids = remedies_.reroute && remedies_.rebalance && shape_.pipelines > 1;
  return avoids ? std::min(own, cross) : own;
}

Line StepPrices::line_of(const Loads& loads, const LayerCounts& layers,
                         const Pattern& pattern) const {
  Line line;
  // If all workers are slow, loads are larger than the step has micro-batches.
  const int64_t all = int64_t{setup_.micros} * shape_.pipelines;
  const int64_t least = std::min(all, *std::min_element(loads.begin(), loads.end()));
  line.micros = static_cast<int32_t>(least);
  for (int32_t s = 0; s < shape_.stages; ++s) {
    const double factor = static_cast<double>(loads[at(s)]) / static_cast<double>(least) *
                          share_of(layers, s, setup_.layers) * slowdown(pattern, s);
    Leg& leg = line.legs.emplace_back();
    leg.forward = times(setup_.forward, factor);
    leg.backward = times(setup_.backward_input, factor);
    leg.weight = times(setup_.backward_weight, factor);
    if (s + 1 < shape_.stages) leg.down = delay(pattern, s);
    if (s > 0) leg.up = delay(pattern, s - 1);
  }
  return line;
}

// Before the first op of a stage's worker a micro-batch comes down to it, and after its last input
// gradient the gradient goes up to the first stage.
Duration StepPrices::bound_of(const Loads& loads, const LayerCounts& layers) const {
  Duration bound{}, ways{};
  for (int32_t s = 0; s < shape_.stages; ++s) {
    const double share = share_of(layers, s, setup_.layers);
    const double load = static_cast<double>(loads[at(s)]) * share;
    const auto ops = static_cast<double>(
        (setup_.forward + setup_.backward_input + setup_.backward_weight).count());
    // Rounded down. While the gradient goes up, the worker may still compute weight gradients.
    const Duration work = from_nanoseconds(std::floor(ops * load));
    const Duration weights =
        from_nanoseconds(std::ceil(static_cast<double>(setup_.backward_weight.count()) * load));
    bound = std::max({bound, ways + work - weights, work});
    const double both =
        static_cast<double>((setup_.forward + setup_.backward_input).count()) * share;
    ways += from_nanoseconds(std::floor(both)) + 2 * setup_.link;
  }
  return bound;
}

Duration StepPrices::time_of(const Line& line) {
  if (!memo_) return play(line);
  const auto found = times_.find(line);
  if (found != times_.end()) return found->second;
  return times_.emplace(line, play(line)).first->second;
}

// 1F1B; with re-ordering also with more forwards ahead at the stages above a slow link, and the
// shortest step counts. Fixed sequences, so that no op gets earlier when another takes longer.
Duration StepPrices::play(const Line& line) {
  const int32_t stages = line.stages();
  int32_t above = 0;  // stages above the last slow link
  for (int32_t s = 0; s + 1 < stages; ++s) {
    if (line.legs[at(s)].down > setup_.link) above = s + 1;
  }
  Replay replay(line);
  Duration best = Duration::max();
  const int32_t most = remedies_.reorder && above > 0 ? setup_.spare : 0;
  for (int32_t more = 0; more <= most;
       more = more == most ? most + 1 : std::min(most, 2 * more + 1)) {
    std::vector<Sequence> sequences;
    for (int32_t s = 0; s < stages; ++s) {
      sequences.push_back(one_f_one_b(line.micros, stages - s + (s < above ? more : 0)));
    }
    const auto time = replay.run(sequences);
    CHECK(time.has_value(), "1F1B cannot deadlock");
    best = std::min(best, *time);
    ++played_;
  }
  return best;
}

LayerCounts StepPrices::best_layers(const Condition& condition) const {
  const auto loads = loads_of(condition);
  if (!loads || !remedies_.layers) return {};
  std::vector<double> cost(loads->begin(), loads->end());  // of one layer at a stage
  if (!remedies_.rebalance) {
    std::vector<double> worst(cost.size(), 1);
    for (const Pattern& pattern : condition) {
      if (!remedies_.reroute && has_death(pattern)) continue;
      for (const Mark& mark : pattern) {
        if (mark.kind != TroubleKind::SlowWorker) continue;
        worst[at(mark.stage)] = std::max(worst[at(mark.stage)], mark.factor);
      }
    }
    for (size_t s = 0; s < cost.size(); ++s) cost[s] *= worst[s];
  }
  const bool equal =
      std::all_of(cost.begin(), cost.end(), [&](double each) { return each == cost[0]; });
  if (equal) return {};
  // Each layer goes to the stage whose time with it is least. Every stage keeps one.
  using Next = std::pair<double, int32_t>;  // time with one layer more, stage
  std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
  LayerCounts layers(cost.size(), 1);
  for (int32_t s = 0; s < shape_.stages; ++s) open.emplace(2 * cost[at(s)], s);
  for (int64_t left = int64_t{setup_.layers - 1} * shape_.stages; left > 0; --left) {
    const int32_t s = open.top().second;
    open.pop();
    ++layers[at(s)];
    open.emplace((layers[at(s)] + 1) * cost[at(s)], s);
  }
  double before = 0, after = 0;
  for (size_t s = 0; s < cost.size(); ++s) {
    before = std::max(before, cost[s] * setup_.layers);
    after = std::max(after, cost[s] * layers[s]);
  }
  return after < before ? layers : LayerCounts{};
}

}  // namespace tenuto::outlook
