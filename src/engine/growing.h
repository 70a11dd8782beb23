// Follows which parts of a stage's gradient sum are complete while the last op that adds to it
// runs. Private to engine/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/growth.h"

namespace tenuto {

// Counts the leading parts of a growing sum that are complete. Used by the compute thread.
class GrowingParts {
 public:
  // `growth` is that of the sum; `step` elements are worth a report.
  GrowingParts(SumGrowth growth, int64_t step);
  // The op begins: nothing is complete.
  void begin();
  // The part is complete. Returns how many leading parts are complete if this is worth a report,
  // else 0.
  int32_t complete(size_t part);
  // A part became complete twice since begin(): what was added to it later came too late.
  bool was_late() const { return twice_; }

 private:
  const SumGrowth growth_;
  const int64_t step_;
  std::vector<bool> complete_;
  size_t leading_ = 0;
  int64_t unreported_ = 0;  // elements of leading parts
  bool twice_ = false;
};

}  // namespace tenuto
