// All-reduces of a gradient sum that is still in the making.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/collective.h"

namespace tenuto {

// Chunks of a sum that grows are cut into slices of about this size, so that the first of them can
// leave early; but not if a chunk has fewer slices than kLeastGrowthSlices. The all-reduce of few
// slices takes longer when they wait for each other than it saves.
inline constexpr int64_t kGrowthSliceBytes = 512 << 10;
inline constexpr int32_t kLeastGrowthSlices = 4;

// The order in which a sum becomes complete.
struct SumGrowth {
  int64_t elements = 0;  // of the sum
  // Ranges of the sum, in the order in which they become complete. The last op that adds to the sum
  // does not add to elements that are in none of them. Empty = nothing is known.
  std::vector<ElementRange> parts;
  bool operator==(const SumGrowth&) const = default;
};

// The collective by which members sum a gradient of fp32 that grows: the same moves on smaller
// chunks, in the order in which these become complete. The bits of the sum are the same. None: it
// is not worth it.
//
// Requires: chunks x slices within int32_t
std::optional<Collective> collective_of_growth(const Collective& whole, const SumGrowth& growth);

}  // namespace tenuto
