#include "engine/device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/text.h"
#include "engine/engine.h"

namespace tenuto {
namespace {

int cuda_count() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return 0;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

}  // namespace

std::string usable_devices() {
  const int count = cuda_count();
  return count == 0 ? std::string("cpu") : cat("cpu and ", count, " cuda device(s)");
}

int accelerator_count() { return cuda_count(); }

// A device becomes current in a thread only when the thread first does work there; selecting it is
// not enough.
void bind_device(const DeviceSettings& settings) {
  const Result<TorchDevice> device = TorchDevice::open(settings);
  if (!device.ok() || !device.value().accelerator()) return;
  at::zeros({1}, at::TensorOptions().device(device.value().place()));
  device.value().finish();
}

TorchDevice::TorchDevice(at::Device place) : place_(place) {
  if (!accelerator()) return;
  const c10::impl::VirtualGuardImpl guard(place.type());
  out_ = guard.getStreamFromGlobalPool(place, true);
  in_ = guard.getStreamFromGlobalPool(place, true);
}

Result<TorchDevice> TorchDevice::open(const DeviceSettings& settings) {
  if (settings.kind == "cpu") return TorchDevice(at::Device(at::kCPU));
  if (settings.kind == "cuda" && cuda_count() > 0) {
    return TorchDevice(at::Device(at::kCUDA, 0));
  }
  return Error{
      Code::Invalid, Reach::Job,
      cat("device.kind = \"", settings.kind, "\" is not here: this build of torch can use ",
          usable_devices(), "; choose one of these")};
}

// Every engine computes on the device's default stream: one op at a time, and the stages of a
// worker in turn.
c10::Stream TorchDevice::compute() const {
  return c10::impl::VirtualGuardImpl(place_.type()).getDefaultStream(place_);
}

at::Tensor TorchDevice::allocate_host(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(accelerator()));
}

// Memory that is allocated on the compute stream may still be in use by work queued there. So
// buffers are allocated on the stream of the copies into them, which is idle when nothing comes.
// record_stream tells the allocator that the compute stream uses the memory too, so it is reused
// only after that use.
at::Tensor TorchDevice::allocate(at::IntArrayRef sizes, at::ScalarType type) const {
  const auto options = at::TensorOptions().dtype(type).device(place_);
  if (!accelerator()) return at::empty(sizes, options);
  const c10::StreamGuard guard(*in_);
  at::Tensor there = at::empty(sizes, options);
  there.record_stream(compute());
  return there;
}

std::shared_ptr<c10::Event> TorchDevice::mark() const {
  if (!accelerator()) return nullptr;
  auto event = std::make_shared<c10::Event>(place_.type());
  event->record(compute());
  return event;
}

void TorchDevice::await(const HeldValue& value) const {
  if (value.made) value.made->block(compute());
}

void TorchDevice::to_host(const HeldValue& value, const at::Tensor& host) const {
  if (!accelerator()) {
    host.copy_(value.tensor);
    return;
  }
  const c10::StreamGuard guard(*out_);
  if (value.made) value.made->block(*out_);
  host.copy_(value.tensor, /*non_blocking=*/true);
  c10::Event copied(place_.type());
  copied.record(*out_);
  copied.synchronize();
}

std::shared_ptr<c10::Event> TorchDevice::to_device(const at::Tensor& host,
                                                   const at::Tensor& there) const {
  if (!accelerator()) {
    there.copy_(host);
    return nullptr;
  }
  const c10::StreamGuard guard(*in_);
  there.copy_(host, /*non_blocking=*/true);
  auto copied = std::make_shared<c10::Event>(place_.type());
  copied->record(*in_);
  copied->synchronize();
  return copied;
}

void TorchDevice::finish() const {
  if (!accelerator()) return;
  c10::impl::VirtualGuardImpl(place_.type()).synchronizeStream(compute());
}

}  // namespace tenuto
