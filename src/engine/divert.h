// A split backward for any module: while a scope lives, torch's own ops leave the gradients of a
// stage's weights as work to be done later. Private to engine/.
//
// Matrix products (mm and addmm, which linear layers call), convolutions and embeddings are
// diverted, each where its weight is one of the stage's as a whole or transposed, or a cast of one
// (autocast). The input's gradient is computed at once. All other gradients are autograd's, also
// those of parts of a weight, of sparse embeddings, and of weights that are a product's left
// factor. A bias that is added in place gets its gradient at once, too, but in its turn.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/deferred.h"
#include "engine/weights.h"

namespace tenuto {

// Lives during a forward and, because activation checkpoints run parts of it again, during its
// backward. It holds for all threads: autograd runs an accelerator's backward on its own threads.
// Weights are found by identity, so stages of one process do not disturb each other.
//
// Gradients are those of a fused backward bit for bit, with one exception: if a weight is used
// three times or more in a micro-batch, and not all of its uses are diverted, its gradients may be
// added in another order. Hooks of a weight are not called for diverted gradients.
class DivertScope {
 public:
  // Backwards of what is computed in this scope append to `work`. `work` lives until they have run,
  // `weights` longer. Requires: no other scope of these weights lives.
  DivertScope(const Weights& weights, DeferredWork& work);
  ~DivertScope();
  DivertScope(const DivertScope&) = delete;
  DivertScope& operator=(const DivertScope&) = delete;

  // What the argument of an op stands for, in the scopes that live.
  struct Found {
    WeightUse use;  // no weight: it stands for none
    DeferredWork* work = nullptr;
    bool transposed = false;
  };
  // Looks the argument up. Any thread.
  static Found find(const at::Tensor& argument);
  // Notes that `cast` was made of `value`, if that is a weight. Any thread.
  static void note_cast(const at::Tensor& value, const at::Tensor& cast);

 private:
  struct Cast {
    const Weight* weight;
    at::Tensor tensor;
    int64_t number;
  };
  Found find_here(const at::Tensor& argument) const;

  const Weights& weights_;
  DeferredWork& work_;
  std::vector<Cast> casts_;
};

}  // namespace tenuto
