// Measures, step by step, how long the threads of a worker waited for a processor. It never waits,
// and asks the kernel at most every kAskEvery, so that short steps are not slowed down by it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/processor_use.h"
#include "base/unit.h"
#include "world/sample.h"

namespace tenuto {

// The least time between two questions to the kernel, each of which reads a file for each thread.
inline constexpr Duration kAskEvery = std::chrono::milliseconds(50);

// The processor use of one worker. A sample is of all steps that ended since the one before.
class ProcessorWatch {
 public:
  // `look`: what the kernel has counted until now.
  explicit ProcessorWatch(std::function<ProcessorUse()> look) : look_(std::move(look)) {}

  // A step begins at `now`, on monotonic_clock(). After a pause, what was counted in it is left
  // out.
  void begin(Duration now);
  // The step that began last ends soon, and the worker has nothing else to do at `now`: asks the
  // kernel here instead of at the end. Called at the same op of each step.
  void look_ahead(Duration now);
  // The step that began last ends at `now`. None: the kernel was asked a short while ago.
  std::optional<ProcessorSample> end(Duration now);

 private:
  std::function<ProcessorUse()> look_;
  bool is_due(Duration now) const { return last_ && now - last_->at >= kAskEvery; }

  std::optional<ProcessorUse> last_;
  std::optional<ProcessorUse> ahead_;  // seen by look_ahead() in the newest step
  Duration began_{}, ended_{};         // of the newest step
  int32_t steps_ = 0;                  // that have ended since the last look
};

}  // namespace tenuto
