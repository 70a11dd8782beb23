// Copies values from a device's memory to the host's and back, for devices whose memory the
// processor cannot read (engine/).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Copies run on two streams of their own, one for each direction, while the device computes.
class Copies {
 public:
  virtual ~Copies() = default;
  // True when `memory` is the first byte of a value in the device's memory: StageCompute::bytes or
  // allocate has returned it, and it is not discarded. Any thread.
  virtual bool holds(const std::byte* memory) const = 0;
  // Allocates pinned memory of the host. Any thread.
  // Errors: Exhausted/Worker
  virtual Result<std::shared_ptr<std::byte>> pinned(Bytes size) = 0;
  // Copies the value that begins at `device` into `host` once the device has made it; returns when
  // the bytes are there. One thread at a time.
  // Errors: Invalid/Worker  the device reports an error, or has no value there
  virtual Status to_host(std::span<const std::byte> device, std::span<std::byte> host) = 0;
  // Copies `host` into the buffer that begins at `device`; ops that start afterwards see it. One
  // thread at a time, which may be another than to_host's. Errors as to_host.
  virtual Status to_device(std::span<const std::byte> host, std::span<std::byte> device) = 0;
};

}  // namespace tenuto
