// The layers of the models, run for one micro-batch at a time. Private to engine/.
//
// Letters of shapes: B rows of the micro-batch, T bytes of a row, C width, V vocabulary, F
// features.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/linear.h"
#include "engine/weights.h"
#include "world/job.h"

namespace tenuto {

// The settings of one pass of one micro-batch.
struct Pass {
  bool training = false;
  uint64_t dropout_key = 0;        // of (seed, step, micro); see dropout_key
  WeightWork* deferred = nullptr;  // where linear layers leave their weight gradients; none: fused
};

// The key of all dropout masks of one micro-batch.
uint64_t dropout_key(int64_t seed, int64_t step, int32_t micro);

// The mask of dropout: 0 with `probability`, else 1 / (1 - probability), a function of the key and
// the element's index alone. The same on every device.
at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, uint64_t key, at::Device place);

// The same mask by tensor operations that every device has; used on accelerators.
at::Tensor dropout_mask_by_tensors(at::IntArrayRef sizes, double probability, uint64_t key,
                                   at::Device place);

// Layers [layer_first, layer_end) of a model, over the weights of a stage.
//
// Precision: bf16 is used for matrix products and what follows them inside a layer; the residual
// stream, the norms' inputs, values between layers and the loss are fp32. So messages are fp32.
class Layers {
 public:
  // Requires: the weights hold the parameters of these layers, and outlive this.
  Layers(const ModelSettings& model, const Weights& weights, int32_t layer_first,
         int32_t layer_end);
  // Runs all layers. gpt: [B, T] bytes (first layer) or [B, T, C] to [B, T, C] or (after the last
  // layer) logits [B, T, V]; mlp: [B, F] or [B, C] to [B, C] or logits.
  at::Tensor run(at::Tensor x, const Pass& pass) const;

 private:
  enum class Kind { Embedding, Block, Head, Hidden, Output };
  struct Layer {
    Kind kind;
    int32_t index;                       // in the whole model
    std::vector<const Weight*> weights;  // in the order of parameters_of
  };
  at::Tensor embedding(const Layer& layer, const at::Tensor& bytes, const Pass& pass) const;
  at::Tensor block(const Layer& layer, const at::Tensor& x, const Pass& pass) const;
  at::Tensor attention(const Layer& layer, const at::Tensor& x, const Pass& pass) const;
  at::Tensor dropped(const at::Tensor& x, const Layer& layer, uint64_t place,
                     const Pass& pass) const;
  at::Tensor run_one(const Layer& layer, const at::Tensor& x, const Pass& pass) const;

  ModelSettings model_;
  std::vector<Layer> layers_;
};

// Mean cross-entropy in nats over all targets. Logits [..., V], targets as many integers.
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace tenuto
