#include "engine/boundary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>

// After torch's headers, which have a CHECK of their own.
#include "base/check.h"
#include "base/text.h"

namespace tenuto {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

int64_t bytes_of(at::IntArrayRef shape, at::ScalarType dtype) {
  return c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string text_of(at::ScalarType dtype, at::IntArrayRef shape) {
  std::string text = cat(c10::toString(dtype), "[");
  for (const int64_t extent : shape) text += cat(text.back() == '[' ? "" : ", ", extent);
  return text + "]";
}

}  // namespace

Boundary Boundary::gradients() const {
  std::vector<TensorSpec> floating;
  for (const TensorSpec& spec : tensors_) {
    if (at::isFloatingType(spec.dtype)) floating.push_back(spec);
  }
  return Boundary(std::move(floating), shapes_);
}

bool Boundary::fits(const at::Tensor& tensor, const TensorSpec& spec) const {
  if (tensor.scalar_type() != spec.dtype) return false;
  if (shapes_ == Shapes::Fixed) return tensor.sizes() == spec.shape;
  if (tensor.dim() != static_cast<int64_t>(spec.shape.size())) return false;
  return std::equal(spec.shape.begin(), spec.shape.end(), tensor.sizes().begin(),
                    std::greater_equal<>());
}

// Of the shapes of all tensors, each extent as an int64_t.
int64_t Boundary::header_bytes() const {
  if (shapes_ == Shapes::Fixed) return 0;
  size_t extents = 0;
  for (const TensorSpec& spec : tensors_) extents += spec.shape.size();
  return aligned(static_cast<int64_t>(extents * sizeof(int64_t)));
}

// Where each tensor begins in a block, and the block's size.
std::vector<int64_t> Boundary::offsets() const {
  std::vector<int64_t> offsets = {header_bytes()};
  for (const TensorSpec& spec : tensors_) {
    offsets.push_back(offsets.back() + aligned(bytes_of(spec.shape, spec.dtype)));
  }
  return offsets;
}

at::Tensor Boundary::allocate(const TorchDevice& device) const {
  if (is_one_tensor()) return device.allocate(tensors_[0].shape, tensors_[0].dtype);
  return device.allocate({offsets().back()}, at::kByte);
}

at::Tensor Boundary::place_in(const at::Tensor& block, size_t index, at::IntArrayRef shape) const {
  const at::ScalarType dtype = tensors_[index].dtype;
  return block.narrow(0, offsets()[index], bytes_of(shape, dtype)).view(dtype).view(shape);
}

Result<at::Tensor> Boundary::pack(const Tensors& tensors) const {
  bool all_fit = tensors.size() == tensors_.size();
  for (size_t i = 0; i < tensors.size() && all_fit; ++i) all_fit = fits(tensors[i], tensors_[i]);
  if (!all_fit) {
    std::string found, expected;
    for (const at::Tensor& one : tensors) found += text_of(one.scalar_type(), one.sizes()) + " ";
    for (const TensorSpec& spec : tensors_) expected += " " + text_of(spec.dtype, spec.shape);
    const bool limits = shapes_ == Shapes::UpTo;
    return Error{
        Code::Invalid, Reach::Worker,
        cat("the module made ", found, "for a boundary of", limits ? " at most" : "", expected,
            limits ? ""
                   : ": make all micro-batches alike, or declare the largest shapes "
                     "(in Python, fit(largest=...))")};
  }
  const at::NoGradGuard guard;
  if (is_one_tensor()) return tensors[0].detach().contiguous();
  at::Tensor block = at::empty({offsets().back()}, tensors[0].options().dtype(at::kByte));
  if (shapes_ == Shapes::UpTo) {
    at::Tensor header = at::zeros({header_bytes()}, at::kByte);
    auto* extent = reinterpret_cast<int64_t*>(header.mutable_data_ptr());
    for (const at::Tensor& one : tensors) {
      extent = std::copy(one.sizes().begin(), one.sizes().end(), extent);
    }
    block.narrow(0, 0, header_bytes()).copy_(header);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    place_in(block, i, tensors[i].sizes()).copy_(tensors[i]);
  }
  return block;
}

Tensors Boundary::unpack(const at::Tensor& block) const {
  if (is_one_tensor()) return {block};
  at::Tensor header;
  const int64_t* extent = nullptr;
  if (shapes_ == Shapes::UpTo) {
    header = block.narrow(0, 0, header_bytes()).cpu();
    extent = reinterpret_cast<const int64_t*>(header.const_data_ptr());
  }
  Tensors tensors;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<int64_t> shape = tensors_[i].shape;
    if (shapes_ == Shapes::UpTo) {
      for (int64_t& largest : shape) {
        CHECK(*extent >= 0 && *extent <= largest, "a block's shapes fit its boundary");
        largest = *extent++;
      }
    }
    tensors.push_back(place_in(block, i, shape));
  }
  return tensors;
}

}  // namespace tenuto
