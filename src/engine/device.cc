#include "engine/device.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/text.h"

namespace tenuto {
namespace {

int cuda_count() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return 0;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

c10::Stream current_stream(const at::Device& place) {
  return c10::impl::VirtualGuardImpl(place.type()).getStream(place);
}

}  // namespace

std::string usable_devices() {
  const int count = cuda_count();
  return count == 0 ? std::string("cpu") : cat("cpu and ", count, " cuda device(s)");
}

Device::Device(at::Device place) : place_(place) {
  if (!accelerator()) return;
  const c10::impl::VirtualGuardImpl guard(place.type());
  copies_ = guard.getStreamFromGlobalPool(place, true);
}

Result<Device> Device::open(const DeviceSettings& settings) {
  if (settings.kind == "cpu") return Device(at::Device(at::kCPU));
  if (settings.kind == "cuda" && cuda_count() > 0) {
    return Device(at::Device(at::kCUDA, 0));
  }
  return Error{
      Code::Invalid, Reach::Job,
      cat("device.kind = \"", settings.kind, "\" is not here: this build of torch can use ",
          usable_devices(), "; choose one of these")};
}

at::Tensor Device::host_room(at::IntArrayRef sizes) const {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat).pinned_memory(accelerator()));
}

at::Tensor Device::to_device(const at::Tensor& host) const {
  if (!accelerator()) return host;
  at::Tensor there = at::empty(host.sizes(), host.options().device(place_).pinned_memory(false));
  const c10::Stream compute = current_stream(place_);
  c10::Event copied(place_.type());
  {
    const c10::StreamGuard guard(*copies_);
    there.record_stream(*copies_);
    there.copy_(host, /*non_blocking=*/true);
    copied.record(*copies_);
  }
  copied.block(compute);
  return there;
}

HostValue Device::to_host(const at::Tensor& source) const {
  if (!accelerator()) return {source, {}, nullptr};
  HostValue value{host_room(source.sizes()), source, std::make_shared<c10::Event>(place_.type())};
  c10::Event computed(place_.type());
  computed.record(current_stream(place_));
  computed.block(*copies_);
  const c10::StreamGuard guard(*copies_);
  value.host.copy_(source, /*non_blocking=*/true);
  value.copied->record(*copies_);
  return value;
}

void Device::finish() const {
  if (!accelerator()) return;
  c10::impl::VirtualGuardImpl(place_.type()).synchronizeStream(current_stream(place_));
}

void Device::wait(HostValue& value) {
  if (!value.copied) return;
  value.copied->synchronize();
  value.copied.reset();
  value.source.reset();
}

}  // namespace tenuto
