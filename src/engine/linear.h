// A linear layer with a split backward: it returns the input's gradient at once and can leave the
// weight's gradient as work to be done later. Private to engine/.
//
// Bitwise equal to torch's own backward: the same products of the same 2-D views, added to the
// gradient micro-batch by micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/deferred.h"
#include "engine/weights.h"

namespace tenuto {

// x [..., I] -> [..., O]. With `deferred`, the backward appends the weight's and bias's gradients
// to it as work; without, autograd adds them. `deferred` must live until that backward. If the
// weight has a low-precision form, the product is made in it and the result has its type.
at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight* bias,
                  DeferredWork* deferred);

}  // namespace tenuto
