// Which stage gets which layers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace tenuto {

// Cuts layers 0 .. cost.size() into `stages` runs of at least one layer, so that the dearest run is
// as cheap as possible. Of those cuts it takes the ones with the least sum of squares, then the one
// with the longer runs first. Returns the first layer of each stage and the end of the last: stages
// + 1 numbers.
//
// Requires: costs are finite and not negative
// Errors:   Invalid/Call  more stages than layers
// Cost:     O(p log p). p counts, for each boundary between runs, the places that it can have in
//           the cuts whose dearest run is as cheap as possible: at most about stages^2 for
//           similar layers. If p is above 50 million, the sum of squares is only nearly the
//           least
Result<std::vector<int32_t>> partition(const std::vector<double>& cost, int32_t stages);

}  // namespace tenuto
