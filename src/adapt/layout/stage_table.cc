#include "adapt/layout/stage_table.h"

#include "base/bisect.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

}  // namespace

StageWalk::StageWalk(const LayoutProblem& problem, const UnitOrder& units, bool from_end)
    : problem_(&problem), units_(&units), from_end_(from_end) {
  const int32_t layers = problem.layer_count(), count = units.unit_count();
  for (int32_t l = 0; l <= layers; ++l) {
    const Layers walked = from_end ? Layers{layers - l, layers} : Layers{0, l};
    work_.push_back(problem.forward(walked) + problem.backward(walked));
    parameters_.push_back(problem.parameters(walked));
    if (problem.layers_have_updates()) {
      updates_.push_back(problem.update(walked) - problem.update({0, 0}));
    }
    state_.push_back(problem.state(walked));
    stash_.push_back(problem.stash(walked));
    cut_.push_back(problem.cut(from_end ? layers - l : l));
    most_cut_ = std::max(most_cut_, cut_.back());
  }
  speeds_.assign(at(count) + 1, 0);
  memory_left_.assign(at(count) + 1, 0);
  for (int32_t u = 1; u <= count; ++u) {
    double& speeds = speeds_[at(u)];
    speeds = speeds_[at(u - 1)];
    for (const WorkerId worker : units.workers(from_end ? count - u : u - 1, 1)) {
      speeds += problem.speed(problem.device(worker));
    }
  }
  for (int32_t u = count; u-- > 0;) {
    double& memory = memory_left_[at(u)];
    memory = memory_left_[at(u + 1)];
    for (const WorkerId worker : units.workers(from_end ? count - 1 - u : u, 1)) {
      memory += problem.memory(problem.device(worker));
    }
  }
}

std::vector<int32_t> StageWalk::least_layers(double limit) const {
  if (limit == kUnreachable) return std::vector<int32_t>(speeds_.size(), 0);
  std::vector<int32_t> least;
  for (const double passed : speeds_) {
    const double left = limit * (speeds() - passed) + kRounding * work_.back();
    const auto first = std::lower_bound(work_.begin(), work_.end(), work_.back() - left);
    least.push_back(static_cast<int32_t>(first - work_.begin()));
  }
  return least;
}

int32_t StageWalk::least_layers_by_memory(int32_t units, int32_t in_flight) const {
  const double memory = memory_left_[at(units)];
  return first_of(0, layer_count(), [&](int32_t layers) {
    return held({layers, layer_count()}).bytes(in_flight) <= memory * (1 + kRounding);
  });
}

StageTerms StageWalk::terms(int32_t end, size_t c) const {
  const int32_t first = from_end_ ? unit_count() - end : end - counts()[c];
  const double replicas = this->replicas(c), speed = units_->speed(first, c);
  StageTerms terms;
  terms.replicas = replicas;
  terms.work = 1 / (replicas * speed);
  terms.reduction = 2 * (replicas - 1) / replicas / units_->slowest_inside(first, c);
  terms.update = 1 / speed;
  terms.passes = passes() / speed;
  terms.memory = units_->memory(first, c);
  return terms;
}

void StageWalk::loads_of_layers(const StageTerms& terms, const LoadWeights& weights,
                                std::vector<double>& loads) const {
  const double work = weights.work * terms.work, byte = weights.reduction * terms.reduction;
  for (size_t l = 0; l < loads.size(); ++l) loads[l] = work * work_[l] + byte * parameters_[l];
  if (updates_.empty()) return;
  const double update = weights.reduction * terms.update;
  for (size_t l = 0; l < loads.size(); ++l) loads[l] += update * updates_[l];
}

double StageWalk::transfer(int32_t end, size_t before, size_t after) const {
  const double slowest = from_end_ ? units_->slowest_between(unit_count() - end, after, before)
                                   : units_->slowest_between(end, before, after);
  return 1 / (replicas(before) * replicas(after) * slowest);
}

double StageWalk::memory(const StageTerms& terms, Layers layers, int32_t in_flight) const {
  return held(layers).bytes(in_flight, terms.replicas);
}

Layout StageWalk::layout(const std::vector<WalkedStage>& stages) const {
  Layout layout;
  for (const WalkedStage& stage : stages) {
    const auto [first, end] = stage.layers;
    const int32_t count = stage.unit_end - stage.unit_first;
    if (from_end_) {
      layout.push_back({layer_count() - end, layer_count() - first,
                        units_->workers(unit_count() - stage.unit_end, count)});
    } else {
      layout.push_back({first, end, units_->workers(stage.unit_first, count)});
    }
  }
  if (!from_end_) std::reverse(layout.begin(), layout.end());
  return layout;
}

}  // namespace tenuto
