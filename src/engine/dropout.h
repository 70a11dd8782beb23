// Dropout: masks that are a function of a key alone. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ir/version.h"

namespace tenuto {

// The key of all dropout masks of one micro-batch of an iteration of the replica.
uint64_t dropout_key(int64_t seed, Iteration iteration, int32_t micro);

// The mask of dropout: 0 with `probability`, else 1 / (1 - probability), a function of the key and
// the element's index alone. The same on every device.
at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, uint64_t key, at::Device place);

// The same mask by tensor operations that every device has; used on accelerators.
at::Tensor dropout_mask_by_tensors(at::IntArrayRef sizes, double probability, uint64_t key,
                                   at::Device place);

}  // namespace tenuto
