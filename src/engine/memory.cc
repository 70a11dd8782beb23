// Counts the bytes of tensors: on the CPU with an allocator that wraps torch's allocator, on an
// accelerator with the statistics of torch's caching allocator.
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "engine/engine.h"

namespace tenuto {
namespace {

// Bytes of tensors in the host's memory: now, and at most.
std::atomic<int64_t> host_now = 0, host_most = 0;

// Takes memory from torch's own allocator and counts it. Stores the size in front of each block,
// because a caller that frees a block may know only its address. Is never destroyed, because
// tensors may live until the end of the process.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    auto* const block = static_cast<std::byte*>(own().raw_allocate(size + kFront));
    const auto bytes = static_cast<int64_t>(size);
    std::memcpy(block, &bytes, sizeof(bytes));
    const int64_t now = host_now.fetch_add(bytes) + bytes;
    for (int64_t most = host_most.load();
         most < now && !host_most.compare_exchange_weak(most, now);) {
    }
    return {block + kFront, block + kFront, free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  static constexpr size_t kFront = 64;  // the alignment of torch's memory

  static c10::Allocator& own() { return *c10::GetDefaultCPUAllocator(); }
  static void free_block(void* data) {
    std::byte* const block = static_cast<std::byte*>(data) - kFront;
    int64_t bytes = 0;
    std::memcpy(&bytes, block, sizeof(bytes));
    host_now.fetch_sub(bytes);
    own().raw_deallocate(block);
  }
};

class HostCount : public MemoryCount {
 public:
  HostCount() {
    constexpr uint8_t kAboveDefault = 1;
    c10::SetCPUAllocator(new CountingAllocator, kAboveDefault);
  }
  MemoryUse use() const override { return {{host_now.load()}, {host_most.load()}}; }
  void reset_most() override { host_most.store(host_now.load()); }
};

class AcceleratorCount : public MemoryCount {
 public:
  explicit AcceleratorCount(c10::DeviceType type) : allocator_(c10::getDeviceAllocator(type)) {}
  MemoryUse use() const override {
    constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto bytes = allocator_->getDeviceStats(0).requested_bytes[kAll];
    return {{bytes.current}, {bytes.peak}};
  }
  void reset_most() override { allocator_->resetPeakStats(0); }

 private:
  c10::DeviceAllocator* const allocator_;
};

}  // namespace

MemoryCount& memory_count(const DeviceSettings& settings) {
  if (settings.kind == "cuda") {
    static AcceleratorCount accelerator(c10::DeviceType::CUDA);
    return accelerator;
  }
  static HostCount host;
  return host;
}

}  // namespace tenuto
