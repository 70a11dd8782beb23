// The tensors at a boundary between two stages, and their layout in a message. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/device.h"

namespace tenuto {

// What a stage takes and gives: several tensors, in a fixed order.
using Tensors = std::vector<at::Tensor>;

// The type and shape of one tensor.
struct TensorSpec {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  bool operator==(const TensorSpec&) const = default;
};

// The tensors that one stage passes to the next one. A message carries them in one block of bytes:
// one after the other, each from a multiple of 64 bytes on. The block of a single tensor is the
// tensor itself.
class Boundary {
 public:
  explicit Boundary(std::vector<TensorSpec> tensors) : tensors_(std::move(tensors)) {}
  bool operator==(const Boundary&) const = default;
  // What travels back: a gradient of every floating-point tensor, and of no other.
  Boundary gradients() const;
  // True when nothing crosses the boundary.
  bool empty() const { return tensors_.empty(); }
  // Uninitialised memory of a block.
  at::Tensor allocate(const TorchDevice& device) const;
  // The block of `tensors`: a single contiguous tensor is its own block, others are copied.
  // Errors: Invalid/Worker if number, types or shapes are not those of the boundary
  Result<at::Tensor> pack(const Tensors& tensors) const;
  // The tensors of a block, without a copy.
  Tensors unpack(const at::Tensor& block) const;

 private:
  std::vector<int64_t> offsets() const;
  std::vector<TensorSpec> tensors_;
};

}  // namespace tenuto
