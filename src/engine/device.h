// One device for whatever torch can drive: on the CPU a value on the wire is the tensor's own
// memory; on an accelerator it is pinned host memory, copied on a stream of its own. Private to
// engine/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "world/job.h"

namespace tenuto {

// A value's memory on the host, and when it is there.
struct HostValue {
  at::Tensor host;
  at::Tensor source;                   // kept until the copy has been made
  std::shared_ptr<c10::Event> copied;  // none: the bytes are there
};

// The device of an engine. All calls but wait() come from the compute thread.
class Device {
 public:
  // Invalid/Job names what there is when the wanted device is not.
  static Result<Device> open(const DeviceSettings& settings);
  // Where tensors live.
  at::Device place() const { return place_; }
  // False on the CPU, where copies, streams and waits are nothing.
  bool accelerator() const { return !place_.is_cpu(); }
  // An fp32 tensor on the host that the wire writes to or reads from. Any thread.
  at::Tensor host_room(at::IntArrayRef sizes) const;
  // The tensor on the device; the compute stream waits for its copy.
  at::Tensor to_device(const at::Tensor& host) const;
  // The tensor on the host; the copy runs beside what is computed next.
  HostValue to_host(const at::Tensor& source) const;
  // Blocks until what was started on the compute stream has ended.
  void finish() const;
  // Blocks until a value's bytes are on the host. Any thread.
  static void wait(HostValue& value);

 private:
  explicit Device(at::Device place);
  at::Device place_;
  std::optional<c10::Stream> copies_;
};

// The devices that this build of torch can use, for people.
std::string usable_devices();

}  // namespace tenuto
