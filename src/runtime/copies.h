// Copies the values of a device with memory of its own to the host and back. The other half of the
// Device interface, for devices whose memory the processor cannot read (engine/).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Copies run on streams of their own, one for each way, beside what the device computes.
class Copies {
 public:
  virtual ~Copies() = default;
  // True when `memory` is the first byte of a value in the device's memory: what StageCompute gave
  // as bytes or as a buffer and has not discarded. Any thread.
  virtual bool holds(const std::byte* memory) const = 0;
  // Memory of the host that the device copies from and to by itself (pinned). Any thread.
  // Errors: Exhausted/Worker
  virtual Result<std::shared_ptr<std::byte>> pinned(Bytes size) = 0;
  // Copies the value that begins at `device` into `host` once the device has made it; returns when
  // the bytes are there. One thread at a time.
  // Errors: Invalid/Worker for what the device says
  virtual Status to_host(std::span<const std::byte> device, std::span<std::byte> host) = 0;
  // The way back, into the buffer that begins at `device`; what is computed afterwards sees it. One
  // thread at a time, which may be another than to_host's.
  virtual Status to_device(std::span<const std::byte> host, std::span<std::byte> device) = 0;
};

}  // namespace tenuto
