#include "runtime/step_values.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/contains.h"

namespace tenuto {

namespace {

// See RestPart::unsummed.
std::vector<Value> gradients_alone(std::span<const Op> list) {
  std::set<std::pair<StageId, MicroId>> weights;
  for (const Op& op : list) {
    if (op.kind == OpKind::BackwardWeight) weights.emplace(op.stage, op.micro);
  }
  std::vector<Value> alone;
  for (const Op& op : list) {
    if (op.kind != OpKind::BackwardInput || weights.contains({op.stage, op.micro})) continue;
    alone.push_back({ValueKind::Gradient, -1, op.stage, op.micro});
  }
  return alone;
}

void keep(StepState& state, const Value& value) {
  StageCompute& compute = *state.machine.compute;
  const bool travels = feeds_compute(value.kind);
  const auto bytes = travels ? compute.bytes(value) : std::span<const std::byte>();
  const auto size = bytes.ok() ? static_cast<int64_t>(bytes.value().size()) : 0;
  compute.keep(value);
  for (const Value& gone : state.input.recovery.holding->keep(value, size)) compute.drop(gone);
}

}  // namespace

Result<Duration> begin_step(StepState& state) {
  const auto& [holding, left, attempt] = state.input.recovery;
  const int64_t step = state.input.step;
  if (left == nullptr) {
    if (holding != nullptr) holding->begin(step, state.input.epoch);
    return state.machine.compute->begin(step);
  }
  if (holding != nullptr) holding->resume(step, attempt, left->stored, left->back);
  RestPart rest = *left;
  rest.unsummed = state.unsummed = gradients_alone(state.list);
  return state.machine.compute->resume(step, rest);
}

void free_value(StepState& state, const Value& value, const Op& by) {
  const bool sent = by.kind == OpKind::Send && has_micro(by);
  const bool total = by.kind == OpKind::Step && value.kind == ValueKind::Total;
  if (state.input.recovery.holding != nullptr && (sent || total)) return keep(state, value);
  state.machine.compute->discard(value);
}

void end_step(StepState& state) {
  Holding* holding = state.input.recovery.holding;
  if (holding == nullptr) return;
  std::vector<StageId> stepped;
  for (size_t i = 0; i < state.list.size(); ++i) {
    const Op& op = state.list[i];
    if (state.rows[i].done && op.kind == OpKind::Step) stepped.push_back(op.stage);
  }
  std::vector<Value> stored = state.walk.stored();
  // If backward is not split, weight work stands for a weight gradient that is in the sum. In this
  // run a backward of `unsummed` has added none, so its weight work does not count.
  std::erase_if(stored, [&](const Value& value) {
    const Value gradient{ValueKind::Gradient, -1, value.stage, value.micro};
    return value.kind == ValueKind::WeightWork && !state.input.plan->split_backward &&
           contains(state.unsummed, gradient);
  });
  const bool all = state.walk.done();
  // The next step begins with an empty store, so keep what other workers may need.
  for (const Value& value : stored) {
    const bool shared = feeds_compute(value.kind) || value.kind == ValueKind::Total ||
                        value.kind == ValueKind::ClipDecision;
    if (all && shared) keep(state, value);
  }
  if (all) stored.clear();
  holding->end(std::move(stored), stepped);
}

}  // namespace tenuto
