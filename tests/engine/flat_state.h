// The parameters and the gradient sum of a stage as flat vectors, read from a device by other calls
// than those of GivenParameters.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/fixed_sum.h"
#include "runtime/device.h"

namespace tenuto {

// A flat vector for each stage.
using Flat = std::vector<std::vector<float>>;

// The parameters: in a state they follow the first unit (Weights::state_bytes).
inline std::vector<float> values_of(Device& device, StageId stage) {
  std::vector<std::byte> state(static_cast<size_t>(device.state_bytes(stage)));
  const Status copied = device.read_state(stage, 0, state);
  CHECK(copied.ok(), copied.error().message);
  const auto unit = static_cast<size_t>(device.state_unit(stage));
  std::vector<float> values(state.size() / unit - 1);
  std::memcpy(values.data(), state.data() + unit, values.size() * sizeof(float));
  return values;
}

// The device's own gradient sum of the newest step, in fp32.
inline std::vector<float> sum_of(Device& device, StageId stage) {
  const auto count = static_cast<size_t>(device.state_bytes(stage) / device.state_unit(stage) - 1);
  const Result<std::span<const std::byte>> bytes =
      device.bytes({ValueKind::Partial, -1, stage, {}});
  CHECK(bytes.ok(), bytes.error().message);
  std::vector<float> sum(count);
  if (device.sum_elements() == Element::Float32) {
    CHECK(bytes.value().size() == count * sizeof(float), "a sum of all elements");
    std::memcpy(sum.data(), bytes.value().data(), count * sizeof(float));
    return sum;
  }
  std::vector<FixedSum> fixed(count);
  CHECK(bytes.value().size() > count * sizeof(FixedSum), "a sum of all elements and a count");
  std::memcpy(fixed.data(), bytes.value().data(), count * sizeof(FixedSum));
  tenuto::read(fixed, sum);
  return sum;
}

// True when both have the same bits.
inline bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

}  // namespace tenuto
