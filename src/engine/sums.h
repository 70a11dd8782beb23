// A stage's gradient sums for sending and receiving: the worker's own, and the totals over its
// group. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>

#include "engine/device.h"
#include "engine/weights.h"
#include "ir/op.h"

namespace tenuto {

// The gradient sums of the weights, in the host's memory; on an accelerator they are copies. Called
// by the worker's thread, except upload().
//
// A total that is not discarded stays valid after its step's update and throughout the next step,
// whose totals then have memory of their own.
class Sums {
 public:
  // Both outlive this.
  Sums(Weights& weights, const TorchDevice& device) : weights_(weights), device_(device) {}
  // Begins step `step` without any total. Calling it again changes nothing.
  void begin(int64_t step);
  // Begins the rest of a step that was begun here before: its totals are here again.
  void resume(int64_t step);
  // The worker's own sum of a bucket (Weights::bucket), as it is now.
  std::span<const std::byte> own(int part);
  // The memory of a total. The total counts as here from now on.
  std::span<std::byte> allocate(const Value& total);
  // True when the total is here.
  bool has(const Value& total) const { return here_.contains(total); }
  // A total that is here.
  std::span<const std::byte> bytes(const Value& total) { return part_of(total.part); }
  // The total is not needed any more.
  void discard(const Value& total) { here_.erase(total); }
  // Copies the totals to the device. The compute thread, while nobody writes them.
  void upload();

 private:
  void change();
  std::span<std::byte> part_of(int part);
  std::span<FixedSum> fixed_part(std::span<FixedSum> all, int part) const;

  Weights& weights_;
  const TorchDevice& device_;
  int64_t step_ = -1;
  std::set<Value> here_, before_;          // of this step and of the one before
  at::Tensor own_, total_, total_before_;  // copies for an accelerator, made when needed
};

}  // namespace tenuto
