// The models of Tenuto, each a StageModule, and the table of them.
//
// Letters of shapes: B rows of the micro-batch, T bytes of a row, C width, V vocabulary, F
// features.
//
// Precision: bf16 is used for matrix products and what follows them inside a layer; the residual
// stream, the norms' inputs, values between layers and the loss are fp32. So messages are fp32.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "engine/dropout.h"
#include "engine/stage_module.h"

namespace tenuto {
namespace {

// A stage of layers that pass on one fp32 tensor.
class LayerStack : public StageModule {
 public:
  LayerStack(const Job& job, const DataExtent& extent, const Stage& stage,
             std::vector<int64_t> hidden)
      : model_(job.model), extent_(extent), stage_(stage), hidden_(std::move(hidden)) {}

  std::vector<ParameterCard> parameters() const override {
    return parameters_of(model_, extent_, stage_.layer_first, stage_.layer_end);
  }
  void bind(const Weights& weights) override;
  Boundary inputs() const override { return Boundary({{at::kFloat, hidden_}}); }
  Boundary outputs() const override { return inputs(); }
  Tensors forward(const Tensors& inputs, const Pass& pass) const override {
    at::Tensor x = inputs[0];
    for (const Layer& layer : layers_) x = run(layer, x, pass);
    return {x};
  }
  // Mean cross-entropy in nats over all targets. Logits [..., V], targets as many integers.
  at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor& logits = outputs[0];
    return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(at::kFloat),
                                  targets[0].reshape({-1}));
  }
  at::Tensor accuracy(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor likeliest = outputs[0].argmax(-1).reshape({-1});
    return likeliest.eq(targets[0].reshape({-1})).to(at::kFloat).mean();
  }

 protected:
  struct Layer {
    int32_t index;                       // in the whole model
    std::vector<const Weight*> weights;  // in the order of parameters_of
  };
  virtual at::Tensor run(const Layer& layer, const at::Tensor& x, const Pass& pass) const = 0;
  // `place` tells the dropouts of a layer apart.
  at::Tensor dropped(const at::Tensor& x, const Layer& layer, uint64_t place,
                     const Pass& pass) const;

  const ModelSettings model_;

 private:
  const DataExtent extent_;
  const Stage stage_;
  const std::vector<int64_t> hidden_;
  std::vector<Layer> layers_;
};

void LayerStack::bind(const Weights& weights) {
  const auto find = [&](const std::string& name) {
    for (const Weight& weight : weights.all()) {
      if (weight.card.name == name) return &weight;
    }
    CHECK(false, cat("the stage has no ", name));
  };
  ModelSettings untied = model_;  // makes parameters_of name a head.weight in the last layer
  untied.tied = false;
  for (int32_t index = stage_.layer_first; index < stage_.layer_end; ++index) {
    Layer layer{index, {}};
    for (const ParameterCard& card : parameters_of(untied, {1, 1}, index, index + 1)) {
      const bool borrowed = model_.tied && card.name == "head.weight";
      layer.weights.push_back(find(borrowed ? "embedding.weight" : card.name));
    }
    layers_.push_back(layer);
  }
}

at::Tensor LayerStack::dropped(const at::Tensor& x, const Layer& layer, uint64_t place,
                               const Pass& pass) const {
  if (!pass.training || model_.dropout == 0) return x;
  const uint64_t key = mix(pass.dropout_key, static_cast<uint64_t>(layer.index), place);
  return x * dropout_mask(x.sizes(), model_.dropout, key, x.device());
}

constexpr double kNormEpsilon = 1e-5;

// Places of a block's weights in the order of parameters_of.
enum BlockWeight : size_t {
  kAttentionNormGain,
  kAttentionNormBias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kFeedNormGain,
  kFeedNormBias,
  kUpWeight,
  kUpBias,
  kDownWeight,
  kDownBias,
};

at::Tensor norm(const at::Tensor& x, const Weight& gain, const Weight& bias) {
  return at::layer_norm(x, {x.size(-1)}, gain.value, bias.value, kNormEpsilon);
}

// [B, T] bytes at the first layer, [B, T, C] between layers, logits [B, T, V] after the last one.
class Gpt : public LayerStack {
 public:
  Gpt(const Job& job, const DataExtent& extent, const Stage& stage)
      : LayerStack(job, extent, stage,
                   {job.parallel.micro_rows, job.model.sequence, job.model.width}) {}

 private:
  at::Tensor run(const Layer& layer, const at::Tensor& x, const Pass& pass) const override;
  at::Tensor block(const Layer& layer, const at::Tensor& x, const Pass& pass) const;
  at::Tensor attention(const Layer& layer, const at::Tensor& x, const Pass& pass) const;
};

at::Tensor Gpt::run(const Layer& layer, const at::Tensor& x, const Pass& pass) const {
  const std::vector<const Weight*>& own = layer.weights;
  if (layer.index == 0) {
    const at::Tensor positions = own[1]->value.narrow(0, 0, x.size(1));
    return dropped(at::embedding(own[0]->value, x) + positions, layer, 0, pass);
  }
  if (layer.index <= model_.layers) return block(layer, x, pass);
  return linear(norm(x, *own[0], *own[1]), *own[2], nullptr, pass.deferred);
}

at::Tensor Gpt::block(const Layer& layer, const at::Tensor& x, const Pass& pass) const {
  const std::vector<const Weight*>& own = layer.weights;
  const at::Tensor attended =
      attention(layer, norm(x, *own[kAttentionNormGain], *own[kAttentionNormBias]), pass);
  const at::Tensor middle = x + dropped(attended, layer, 0, pass);
  const at::Tensor up = linear(norm(middle, *own[kFeedNormGain], *own[kFeedNormBias]),
                               *own[kUpWeight], own[kUpBias], pass.deferred);
  const at::Tensor down = linear(at::gelu(up), *own[kDownWeight], own[kDownBias], pass.deferred);
  return middle + dropped(down, layer, 1, pass);
}

at::Tensor Gpt::attention(const Layer& layer, const at::Tensor& x, const Pass& pass) const {
  const int64_t rows = x.size(0), length = x.size(1), width = x.size(2);
  const at::Tensor qkv =
      linear(x, *layer.weights[kQkvWeight], layer.weights[kQkvBias], pass.deferred);
  // [B, T, 3, heads, C / heads] -> three of [B, heads, T, C / heads]
  const std::vector<at::Tensor> parts =
      qkv.view({rows, length, 3, model_.heads, -1}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor mixed =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
  return linear(mixed.transpose(1, 2).reshape({rows, length, width}),
                *layer.weights[kProjectionWeight], layer.weights[kProjectionBias], pass.deferred);
}

// [B, F] at the first layer, [B, C] between layers, logits after the last one.
class Mlp : public LayerStack {
 public:
  Mlp(const Job& job, const DataExtent& extent, const Stage& stage)
      : LayerStack(job, extent, stage, {job.parallel.micro_rows, job.model.width}) {}

 private:
  at::Tensor run(const Layer& layer, const at::Tensor& x, const Pass& pass) const override {
    const at::Tensor y = linear(x, *layer.weights[0], layer.weights[1], pass.deferred);
    if (layer.index == model_.layers) return y;
    return dropped(at::relu(y).to(at::kFloat), layer, 0, pass);
  }
};

template <class Module>
std::unique_ptr<StageModule> made(const Job& job, const DataExtent& extent, const Stage& stage) {
  return std::make_unique<Module>(job, extent, stage);
}

}  // namespace

const ModelKind& model_kind(const ModelSettings& model) {
  static const ModelKind gpt{true, false, made<Gpt>}, mlp{false, false, made<Mlp>};
  static const ModelKind module{false, true, nullptr};
  if (model.kind == "module") return module;
  return model.kind == "gpt" ? gpt : mlp;
}

}  // namespace tenuto
