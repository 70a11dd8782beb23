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

// Whether the tensors of all micro-batches have the shapes of a boundary, or at most these, in as
// many dimensions.
enum class Shapes : uint8_t { Fixed, UpTo };

// The tensors that one stage passes to the next one. A message carries them in one block of bytes:
// one after the other, each from a multiple of 64 bytes on. The block of a single tensor with a
// fixed shape is the tensor itself. With shapes up to a limit, the block is as long as the largest
// tensors need, and it begins with the shapes.
class Boundary {
 public:
  explicit Boundary(std::vector<TensorSpec> tensors, Shapes shapes = Shapes::Fixed)
      : tensors_(std::move(tensors)), shapes_(shapes) {}
  bool operator==(const Boundary&) const = default;
  // What travels back: a gradient of every floating-point tensor, and of no other.
  Boundary gradients() const;
  // True when nothing crosses the boundary.
  bool empty() const { return tensors_.empty(); }
  // Uninitialised memory of a block.
  at::Tensor allocate(const TorchDevice& device) const;
  // The block of `tensors`. A single contiguous tensor with a fixed shape is its own block; others
  // are copied.
  // Errors: Invalid/Worker if number, types or shapes do not fit the boundary
  Result<at::Tensor> pack(const Tensors& tensors) const;
  // The tensors of a block, without a copy.
  Tensors unpack(const at::Tensor& block) const;

 private:
  bool is_one_tensor() const { return tensors_.size() == 1 && shapes_ == Shapes::Fixed; }
  bool fits(const at::Tensor& tensor, const TensorSpec& spec) const;
  int64_t header_bytes() const;
  std::vector<int64_t> offsets() const;
  // The part of a block for a tensor of that shape.
  at::Tensor place_in(const at::Tensor& block, size_t index, at::IntArrayRef shape) const;

  std::vector<TensorSpec> tensors_;
  Shapes shapes_;
};

}  // namespace tenuto
