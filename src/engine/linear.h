// A linear layer with a split backward: it returns the input's gradient at once and can leave the
// weight's gradient as work to be done later. Private to engine/.
//
// Bitwise equal to torch's own backward: the same products of the same 2-D views, added to the
// gradient micro-batch by micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "engine/weights.h"

namespace tenuto {

// The weight gradient of one linear layer and one micro-batch, not yet computed. With R rows, I
// inputs and O outputs: x [R, I], dy [R, O].
struct LinearWork {
  at::Tensor x, dy;
  const Weight* weight = nullptr;
  const Weight* bias = nullptr;  // may be null
};

// The deferred work of one stage and micro-batch, in the order in which the backward met it.
using DeferredWork = std::vector<LinearWork>;

// x [..., I] -> [..., O]. With `deferred`, the backward appends the weight's and bias's gradients
// to it as work; without, autograd adds them. `deferred` must live until that backward. If the
// weight has a low-precision form, the product is made in it and the result has its type.
at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight* bias,
                  DeferredWork* deferred);

// Does the deferred work and adds it to the gradients. `scratch` keeps the memory of one product
// between calls. `added`, if not empty, is called with each weight as soon as no more of the work
// adds to it.
void drain(DeferredWork& work, at::Tensor& scratch,
           const std::function<void(const Weight&)>& added = {});

}  // namespace tenuto
