// How the gradient sums of a device grow during the last op of a step that adds to them. With it,
// the all-reduce of a sum begins before that op has ended.
#pragma once

#include "base/id.h"
#include "collective/growth.h"

namespace tenuto {

// A device that says while an op runs which parts of the sum are complete.
class GradientGrowth {
 public:
  virtual ~GradientGrowth() = default;
  // The growth of the stage's sum: the same at all workers that hold the stage, because the
  // messages of the all-reduce follow it.
  virtual SumGrowth growth_of(StageId stage) const = 0;
  // The next op that is started adds to the sum of `stage`, and it is the last one of the step that
  // does. While it runs, the device posts reports with its ticket and with Done::grown.
  virtual void report_growth(StageId stage) = 0;
};

}  // namespace tenuto
