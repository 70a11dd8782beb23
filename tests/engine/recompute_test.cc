// The memory of stages that recompute: the bytes of all tensors, counted in torch's allocator, fall
// as sizes_of() and memory_of() predict.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "engine/driver.h"
#include "engine/toy_job.h"
#include "world/memory_need.h"

namespace tenuto {
namespace {

std::atomic<int64_t> g_bytes = 0, g_peak = 0;

// Torch's allocator, with a count of the bytes that are in use. Each block begins with its size.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    auto* block = static_cast<std::byte*>(std::aligned_alloc(kHead, kHead + (size + 63) / 64 * 64));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(size);
    const int64_t now = g_bytes += static_cast<int64_t>(size);
    g_peak = std::max(g_peak.load(), now);
    return {block + kHead, block + kHead, release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  static constexpr size_t kHead = 64;
  static void release(void* data) {
    std::byte* block = static_cast<std::byte*>(data) - kHead;
    g_bytes -= *reinterpret_cast<int64_t*>(block);
    std::free(block);
  }
};

class Recompute : public ToyTest {
 protected:
  Recompute() {
    static CountingAllocator counting;
    c10::SetCPUAllocator(&counting, 1);
    write_lines("a.txt", 2000, [](std::ostream& out, int i) { out << i << " and more.\n"; });
  }

  // Two stages of a block each, in an order in which both hold all micro-batches at once.
  Job job(int32_t micros, bool recompute, bool split = false) const {
    Job job = toy_job(2, micros);
    job.model.dropout = 0.1;
    job.parallel.order = "gpipe";
    job.parallel.split_backward = split;
    if (recompute) job.parallel.recompute = "all";
    return job;
  }

  // The most bytes at once in the second step, whose memory is that of all later ones.
  static int64_t peak_of(const Job& job) {
    Driver driver(job);
    driver.run(0);
    g_peak = g_bytes.load();
    driver.run(1);
    return g_peak;
  }
};

TEST_F(Recompute, AMicroBatchTakesNoMoreThanTheInputsOfItsStages) {
  // Of the two stages, only the second has an input that is kept: the first one reads its data
  // again.
  const Job sizes = job(1, false);
  const int64_t input =
      int64_t{4} * sizes.parallel.micro_rows * sizes.model.sequence * sizes.model.width;
  const int64_t few = peak_of(job(3, true)), many = peak_of(job(8, true));
  EXPECT_EQ(many - few, 5 * input);
  const int64_t few_kept = peak_of(job(3, false)), many_kept = peak_of(job(8, false));
  EXPECT_GE(many_kept - few_kept, 5 * 2 * 10 * input);  // at least 10 activations of each block
  const int64_t stashes = (many_kept - few_kept) / 5;
  EXPECT_EQ(5 * stashes, many_kept - few_kept);
  // Seven of the eight stashes of both stages are not there, and of the eighth the stash of that
  // stage whose backward does not run.
  EXPECT_GE(many_kept - many, 7 * (stashes - input));
  EXPECT_LE(many_kept - many, 8 * stashes - 7 * input);
}

TEST_F(Recompute, ThePredictedNeedFallsByNoMoreThanTheMemory) {
  for (const bool split : {false, true}) {
    const Job keeping = job(6, false, split), again = job(6, true, split);
    const Driver one(keeping), other(again);
    const std::vector<WorkerId> both = {{0}, {1}};
    const double less = memory_of(keeping, one.plan(), both) - memory_of(again, other.plan(), both);
    EXPECT_GT(less, 0);
    if (split) continue;  // weight works, which no recomputation makes smaller, are not counted
    EXPECT_LE(less, static_cast<double>(peak_of(keeping) - peak_of(again)));
  }
}

}  // namespace
}  // namespace tenuto
