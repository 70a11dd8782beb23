#include "engine/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr uint64_t kDropoutKey = 0x64726f70;

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

// The constants of the mask's hash: two rounds of multiply and xor-shift (the "lowbias32" mixer,
// found by exhaustive search for low bias, Wellons 2018), with one half of the key before and the
// other between them.
constexpr uint32_t kFirstFactor = 0x7feb352d;
constexpr uint32_t kSecondFactor = 0x846ca68b;
constexpr uint32_t kSpread = 0x9e3779b9;

[[gnu::always_inline]] inline uint32_t hash(uint32_t index, uint32_t first_key,
                                            uint32_t second_key) {
  uint32_t x = index * kSpread + first_key;
  x = (x ^ (x >> 16)) * kFirstFactor;
  x = (x ^ (x >> 15)) * kSecondFactor;
  x = (x ^ (x >> 16)) + second_key;
  x = (x ^ (x >> 16)) * kFirstFactor;
  x = (x ^ (x >> 15)) * kSecondFactor;
  return x ^ (x >> 16);
}

// Elements whose hash is below this are dropped.
uint32_t threshold_of(double probability) {
  return static_cast<uint32_t>(std::min(probability * 0x1.0p32, 0x1.0p32 - 1));
}

[[gnu::always_inline]] inline void fill(float* mask, uint32_t count, float scale,
                                        uint32_t threshold, uint64_t key) {
  const auto first = static_cast<uint32_t>(key);
  const auto second = static_cast<uint32_t>(key >> 32);
  for (uint32_t i = 0; i < count; ++i) {
    mask[i] = hash(i, first, second) >= threshold ? scale : 0.0F;
  }
}

#if defined(__x86_64__)
// The same loop compiled for AVX2: the oldest x86-64 has no vector instruction for its 32-bit
// products.
[[gnu::target("avx2")]] void fill_wide(float* mask, uint32_t count, float scale, uint32_t threshold,
                                       uint64_t key) {
  fill(mask, count, scale, threshold, key);
}
#endif

void fill_mask(float* mask, uint32_t count, float scale, uint32_t threshold, uint64_t key) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return fill_wide(mask, count, scale, threshold, key);
#endif
  fill(mask, count, scale, threshold, key);
}

at::Tensor norm(const at::Tensor& x, const Weight& gain, const Weight& bias) {
  return at::layer_norm(x, {x.size(-1)}, gain.value, bias.value, kNormEpsilon);
}

}  // namespace

uint64_t dropout_key(int64_t seed, int64_t step, int32_t micro) {
  return mix(static_cast<uint64_t>(seed), kDropoutKey, static_cast<uint64_t>(step),
             static_cast<uint64_t>(micro));
}

at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, uint64_t key, at::Device place) {
  if (!place.is_cpu()) return dropout_mask_by_tensors(sizes, probability, key, place);
  at::Tensor mask = at::empty(sizes, at::kFloat);
  CHECK(mask.numel() < int64_t{std::numeric_limits<int32_t>::max()}, "a mask of fewer than 2^31");
  fill_mask(mask.mutable_data_ptr<float>(), static_cast<uint32_t>(mask.numel()),
            static_cast<float>(1 / (1 - probability)), threshold_of(probability), key);
  return mask;
}

at::Tensor dropout_mask_by_tensors(at::IntArrayRef sizes, double probability, uint64_t key,
                                   at::Device place) {
  constexpr int64_t kWord = 0xffffffff;
  int64_t count = 1;
  for (const int64_t extent : sizes) count *= extent;
  // 64-bit integers, cut to 32 bits after each multiplication: devices have no unsigned product.
  const auto round = [](at::Tensor& x, int shift, uint32_t factor) {
    x.bitwise_xor_(x.bitwise_right_shift(shift));
    x.mul_(static_cast<int64_t>(factor)).bitwise_and_(kWord);
  };
  at::Tensor x = at::arange(count, at::TensorOptions().dtype(at::kLong).device(place));
  x.mul_(int64_t{kSpread}).add_(static_cast<int64_t>(key & kWord)).bitwise_and_(kWord);
  round(x, 16, kFirstFactor);
  round(x, 15, kSecondFactor);
  x.bitwise_xor_(x.bitwise_right_shift(16));
  x.add_(static_cast<int64_t>(key >> 32)).bitwise_and_(kWord);
  round(x, 16, kFirstFactor);
  round(x, 15, kSecondFactor);
  x.bitwise_xor_(x.bitwise_right_shift(16));
  const auto scale = static_cast<float>(1 / (1 - probability));
  return x.ge(static_cast<int64_t>(threshold_of(probability)))
      .to(at::kFloat)
      .mul_(scale)
      .view(sizes);
}

Layers::Layers(const ModelSettings& model, const Weights& weights, int32_t layer_first,
               int32_t layer_end)
    : model_(model) {
  const auto find = [&](const std::string& name) {
    for (const Weight& weight : weights.all()) {
      if (weight.card.name == name) return &weight;
    }
    CHECK(false, cat("the stage has no ", name));
  };
  const bool gpt = model.kind == "gpt";
  const int32_t last = model.layers + (gpt ? 1 : 0);
  for (int32_t index = layer_first; index < layer_end; ++index) {
    Layer layer{gpt ? Kind::Block : Kind::Hidden, index, {}};
    if (gpt && index == 0) layer.kind = Kind::Embedding;
    if (index == last) layer.kind = gpt ? Kind::Head : Kind::Output;
    ModelSettings untied = model;  // names of this layer's own weights
    untied.tied = false;
    for (const ParameterCard& card : parameters_of(untied, {1, 1}, index, index + 1)) {
      const bool borrowed = model.tied && card.name == "head.weight";
      layer.weights.push_back(find(borrowed ? "embedding.weight" : card.name));
    }
    layers_.push_back(layer);
  }
}

at::Tensor Layers::run(at::Tensor x, const Pass& pass) const {
  for (const Layer& layer : layers_) x = run_one(layer, x, pass);
  return x;
}

at::Tensor Layers::run_one(const Layer& layer, const at::Tensor& x, const Pass& pass) const {
  switch (layer.kind) {
    case Kind::Embedding:
      return embedding(layer, x, pass);
    case Kind::Block:
      return block(layer, x, pass);
    case Kind::Head:
      return linear(norm(x, *layer.weights[0], *layer.weights[1]), *layer.weights[2], nullptr,
                    pass.deferred);
    case Kind::Hidden: {
      const at::Tensor y =
          at::relu(linear(x, *layer.weights[0], layer.weights[1], pass.deferred)).to(at::kFloat);
      return dropped(y, layer, 0, pass);
    }
    case Kind::Output:
      break;
  }
  return linear(x, *layer.weights[0], layer.weights[1], pass.deferred);
}

at::Tensor Layers::embedding(const Layer& layer, const at::Tensor& bytes, const Pass& pass) const {
  const at::Tensor positions = layer.weights[1]->value.narrow(0, 0, bytes.size(1));
  return dropped(at::embedding(layer.weights[0]->value, bytes) + positions, layer, 0, pass);
}

at::Tensor Layers::block(const Layer& layer, const at::Tensor& x, const Pass& pass) const {
  const std::vector<const Weight*>& own = layer.weights;
  const at::Tensor attended =
      attention(layer, norm(x, *own[kAttentionNormGain], *own[kAttentionNormBias]), pass);
  const at::Tensor middle = x + dropped(attended, layer, 0, pass);
  const at::Tensor up = linear(norm(middle, *own[kFeedNormGain], *own[kFeedNormBias]),
                               *own[kUpWeight], own[kUpBias], pass.deferred);
  const at::Tensor down = linear(at::gelu(up), *own[kDownWeight], own[kDownBias], pass.deferred);
  return middle + dropped(down, layer, 1, pass);
}

at::Tensor Layers::attention(const Layer& layer, const at::Tensor& x, const Pass& pass) const {
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

at::Tensor Layers::dropped(const at::Tensor& x, const Layer& layer, uint64_t place,
                           const Pass& pass) const {
  if (!pass.training || model_.dropout == 0) return x;
  const uint64_t key = mix(pass.dropout_key, static_cast<uint64_t>(layer.index), place);
  return x * dropout_mask(x.sizes(), model_.dropout, key, x.device());
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(at::kFloat),
                                targets.reshape({-1}));
}

}  // namespace tenuto
