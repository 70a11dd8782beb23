// Weight gradients that a backward has left to be computed later. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/weights.h"

namespace tenuto {

// What an op used as a weight.
struct WeightUse {
  const Weight* weight = nullptr;  // null: none
  int64_t cast = 0;                // tells casts of the weight apart; 0: its value, uncast
};

// The gradients of a weight and a bias by one op of one micro-batch, not yet computed.
struct DeferredGradients {
  // Computes both, in the shapes of the weight and the bias, from the op's input `x` and the
  // gradient `dy` of its output; what there is none of is undefined. The first may lie in
  // `scratch`, which grows to what is needed.
  using Compute = std::function<std::pair<at::Tensor, at::Tensor>(
      const at::Tensor& x, const at::Tensor& dy, at::Tensor& scratch)>;

  at::Tensor x, dy;
  WeightUse weight, bias;
  Compute compute;
};

// The deferred work of one stage and micro-batch, in the order in which the backward met it. It
// needs no lock: a stage's weights are on one device, whose part of a backward runs on one thread.
using DeferredWork = std::vector<DeferredGradients>;

// The product of two matrices, in `scratch`, which keeps its memory between calls.
at::Tensor product_in(at::Tensor& scratch, const at::Tensor& left, const at::Tensor& right);

// Appends a gradient that has been computed already, so that it is added in its turn.
void append_made(DeferredWork& work, const WeightUse& use, at::Tensor gradient);

// Moves those of `made` whose weights have deferred work to its end: what a micro-batch adds to a
// weight is summed first, as autograd sums it.
void append_to(DeferredWork& work, std::vector<WeightGradient>& made);

// Does the deferred work and adds it to the gradients. The gradients of one weight are first summed
// in the order of the work, those of one cast in its type. `scratch` keeps the memory of one
// product between calls. `added`, if not empty, is called with each weight as soon as no more of
// the work adds to it.
void drain(DeferredWork& work, at::Tensor& scratch,
           const std::function<void(const Weight&)>& added = {});

}  // namespace tenuto
