#include "world/model.h"

#include <cmath>

#include "base/check.h"
#include "base/exact_sum.h"
#include "base/longest_time.h"

namespace tenuto {

namespace {

// A Norm is a sum and a count, a ClipDecision a norm and a flag (runtime/norm.h), whatever the
// model.
constexpr Bytes kNorm{sizeof(ExactSum) + sizeof(int64_t)};
constexpr Bytes kClipDecision{16};

}  // namespace

StageCost stage_cost(const Model& model, const Stage& stage) {
  CHECK(stage.layer_first >= 0 && stage.layer_first <= stage.layer_end &&
            static_cast<size_t>(stage.layer_end) <= model.layers.size(),
        "a stage's layers lie outside the model");
  StageCost cost;
  cost.forward = cost.backward_input = model.op;
  cost.update = model.step;
  for (int32_t i = stage.layer_first; i < stage.layer_end; ++i) {
    const Layer& layer = model.layers[static_cast<size_t>(i)];
    cost.forward = plus(cost.forward, layer.forward);
    cost.backward_input = plus(cost.backward_input, layer.backward_input);
    cost.backward_weight = plus(cost.backward_weight, layer.backward_weight);
    cost.update = plus(cost.update, layer.update);
    cost.activation = layer.activation;
    cost.stash = cost.stash + layer.stash;
    cost.parameters = cost.parameters + layer.parameters;
  }
  if (!stage.recompute) return cost;
  cost.backward_input = plus(cost.backward_input, cost.forward);
  cost.rebuilt = cost.stash;
  const auto first = static_cast<size_t>(stage.layer_first);
  cost.stash = first == 0 ? Bytes{} : model.layers[first - 1].activation;
  return cost;
}

Sizes sizes_of(const Model& model, const std::vector<Stage>& stages, double weight_share) {
  Sizes sizes;
  Bytes before;  // the activation that comes into the stage
  for (const Stage& stage : stages) {
    const StageCost cost = stage_cost(model, stage);
    auto& of = sizes.of.emplace_back();
    const auto set = [&](ValueKind kind, Bytes size) { of[static_cast<size_t>(kind)] = size; };
    set(ValueKind::Activation, cost.activation);
    set(ValueKind::Gradient, before);
    set(ValueKind::Stash, cost.stash);
    const Bytes read = stage.recompute ? cost.rebuilt : cost.stash;
    set(ValueKind::WeightWork, {std::llround(static_cast<double>(read.count) * weight_share)});
    set(ValueKind::Total, cost.parameters);
    set(ValueKind::Norm, kNorm);
    set(ValueKind::ClipDecision, kClipDecision);
    before = cost.activation;
  }
  return sizes;
}

Bytes size_of_sum(Bytes parameters, Bytes tied, int16_t part) {
  if (part > 0) return tied;
  return part == 0 ? parameters - tied : parameters;
}

Bytes chunk_size(Bytes size, int32_t count, int32_t chunk) {
  const auto edge = [&](int64_t c) {
    // Divides before it multiplies: size x c overflows for large tensors with many chunks.
    return size.count / count * c + size.count % count * c / count;
  };
  return {edge(int64_t{chunk} + 1) - edge(chunk)};
}

}  // namespace tenuto
