#include "engine/copies.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <exception>
#include <string>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// A piece of a slot as a tensor; the slot outlives it.
at::Tensor view_of(const std::byte* memory, size_t size) {
  return at::from_blob(const_cast<std::byte*>(memory), {static_cast<int64_t>(size)}, at::kByte);
}

// Torch throws exceptions; here they become errors.
template <class Call>
Status guarded(const char* what, const Call& call) {
  try {
    const at::NoGradGuard guard;
    return call();
  } catch (const std::exception& exception) {
    const std::string text = exception.what();
    return Error{
        Code::Invalid, Reach::Worker,
        cat("a copy ", what, " the device failed: torch: ", text.substr(0, text.find('\n')))};
  }
}

class TorchCopies : public Copies {
 public:
  TorchCopies(const TorchDevice& device, std::shared_ptr<ValueStore> store)
      : device_(device), store_(std::move(store)) {}

  bool holds(const std::byte* memory) const override { return store_->holds(memory); }

  Result<std::shared_ptr<std::byte>> pinned(Bytes size) override {
    std::shared_ptr<std::byte> memory;
    const Status made = guarded("beside", [&]() -> Status {
      auto tensor = std::make_shared<at::Tensor>(device_.allocate_host({size.count}, at::kByte));
      memory = {tensor, static_cast<std::byte*>(tensor->mutable_data_ptr())};
      return ok();
    });
    if (made.ok()) return memory;
    return Error{
        Code::Exhausted, Reach::Worker,
        cat("no ", size.count, " bytes of pinned memory for messages: ", made.error().message)};
  }

  Status to_host(std::span<const std::byte> device, std::span<std::byte> host) override {
    return guarded("from", [&]() -> Status {
      HeldValue value = store_->at(device.data());
      if (!fits(value, device)) return gone();
      value.tensor = as_bytes(value.tensor);
      device_.to_host(value, view_of(host.data(), host.size()));
      return ok();
    });
  }

  Status to_device(std::span<const std::byte> host, std::span<std::byte> device) override {
    return guarded("to", [&]() -> Status {
      const HeldValue value = store_->at(device.data());
      if (!fits(value, device)) return gone();
      store_->mark(device.data(),
                   device_.to_device(view_of(host.data(), host.size()), as_bytes(value.tensor)));
      return ok();
    });
  }

 private:
  static bool fits(const HeldValue& value, std::span<const std::byte> bytes) {
    return value.tensor.defined() && value.tensor.nbytes() == bytes.size();
  }
  static Status gone() {
    return Error{Code::Invalid, Reach::Worker,
                 "a message names memory of the device that holds no value"};
  }

  const TorchDevice device_;
  const std::shared_ptr<ValueStore> store_;
};

}  // namespace

std::unique_ptr<Copies> make_copies(const TorchDevice& device, std::shared_ptr<ValueStore> store) {
  return std::make_unique<TorchCopies>(device, std::move(store));
}

}  // namespace tenuto
