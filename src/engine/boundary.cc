#include "engine/boundary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "base/text.h"

namespace tenuto {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

int64_t bytes_of(const TensorSpec& spec) {
  return c10::multiply_integers(spec.shape) * static_cast<int64_t>(c10::elementSize(spec.dtype));
}

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
  return Boundary(std::move(floating));
}

// Where each tensor begins in a block, and the block's size.
std::vector<int64_t> Boundary::offsets() const {
  std::vector<int64_t> offsets = {0};
  for (const TensorSpec& spec : tensors_) {
    offsets.push_back((offsets.back() + bytes_of(spec) + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offsets;
}

at::Tensor Boundary::allocate(const TorchDevice& device) const {
  if (tensors_.size() == 1) return device.allocate(tensors_[0].shape, tensors_[0].dtype);
  return device.allocate({offsets().back()}, at::kByte);
}

Result<at::Tensor> Boundary::pack(const Tensors& tensors) const {
  bool fits = tensors.size() == tensors_.size();
  for (size_t i = 0; i < tensors.size() && fits; ++i) {
    fits = tensors[i].scalar_type() == tensors_[i].dtype && tensors[i].sizes() == tensors_[i].shape;
  }
  if (!fits) {
    std::string found, expected;
    for (const at::Tensor& one : tensors) found += text_of(one.scalar_type(), one.sizes()) + " ";
    for (const TensorSpec& spec : tensors_) expected += " " + text_of(spec.dtype, spec.shape);
    return Error{Code::Invalid, Reach::Worker,
                 cat("the module made ", found, "for a boundary of", expected)};
  }
  const at::NoGradGuard guard;
  if (tensors.size() == 1) return tensors[0].detach().contiguous();
  at::Tensor block = at::empty({offsets().back()}, tensors[0].options().dtype(at::kByte));
  const Tensors places = unpack(block);
  for (size_t i = 0; i < tensors.size(); ++i) places[i].copy_(tensors[i]);
  return block;
}

Tensors Boundary::unpack(const at::Tensor& block) const {
  if (tensors_.size() == 1) return {block};
  const std::vector<int64_t> first = offsets();
  Tensors tensors;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor bytes = block.narrow(0, first[i], bytes_of(tensors_[i]));
    tensors.push_back(bytes.view(tensors_[i].dtype).view(tensors_[i].shape));
  }
  return tensors;
}

}  // namespace tenuto
