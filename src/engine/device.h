// A device that torch can drive, used only through calls that all of torch's devices have, and a
// value in its memory. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unit.h"
#include "world/job.h"

namespace tenuto {

// A value in the device's or the host's memory, and the event after which it is complete.
struct HeldValue {
  at::Tensor tensor;
  std::shared_ptr<c10::Event> made;  // none: it is complete
};

// The device of an engine. Streams do nothing on the CPU, where copies end before they return.
class TorchDevice {
 public:
  // Opens the job's device. Invalid/Job when it is not there; the error names the devices that are.
  static Result<TorchDevice> open(const DeviceSettings& settings);
  // Where tensors live.
  at::Device place() const { return place_; }
  // False on the CPU.
  bool accelerator() const { return !place_.is_cpu(); }
  // Uninitialised memory of the host, pinned for an accelerator. Any thread.
  at::Tensor allocate_host(at::IntArrayRef sizes, at::ScalarType type) const;
  // Uninitialised memory of the device for a value that comes from another worker: no work that is
  // still queued on the device touches it. Any thread.
  at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType type) const;
  // An event after all work that was started on the compute stream so far; none on the CPU.
  std::shared_ptr<c10::Event> mark() const;
  // Makes all work that is started on the compute stream from now on wait for the value.
  void await(const HeldValue& value) const;
  // Copies into `host`, which allocate_host gave, on a separate stream; returns when the copy has
  // ended.
  void to_host(const HeldValue& value, const at::Tensor& host) const;
  // Copies into `there`, which allocate gave, on a separate stream, and waits for the copy's end.
  // Returns the event of that end, for other streams to wait for; none on the CPU.
  std::shared_ptr<c10::Event> to_device(const at::Tensor& host, const at::Tensor& there) const;
  // Blocks until what was started on the compute stream has ended.
  void finish() const;

 private:
  explicit TorchDevice(at::Device place);
  c10::Stream compute() const;
  at::Device place_;
  std::optional<c10::Stream> out_, in_;  // of an accelerator: one for each way
};

// The devices that this build of torch can use, for people.
std::string usable_devices();

}  // namespace tenuto
