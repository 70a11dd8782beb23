// Says why a worker is slow: whether others take its processors, its link delays it, or its device
// is slow.
//
// What its slow steps are made of is compared with its healthy ones, by the rule of
// world/straggler_cause.h. A worker that was never healthy is compared with one that never waits
// for a processor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "monitor/verdict.h"
#include "world/sample.h"

namespace tenuto {

// One step of a worker, of those in which it asked the kernel. Times are in nanoseconds.
struct StepLoad {
  int64_t step = 0;
  double took = 0, should = 0;  // all its ops: how long they lasted, and should have lasted
  double later = 0;             // what slow links add to the arrival of its messages, added up
  ProcessorSample processor;
};

// One worker. A value; memory is bounded.
class LoadWatch {
 public:
  // Takes the next step. Steps that are not newer than the newest are ignored.
  void add(const StepLoad& load);

  // Takes a verdict of SpeedWatch on the worker, and gives it the cause where that is known yet.
  void judge(Verdict& verdict);

  // Returns the last verdict a second time, now with its cause, if the cause was not yet known when
  // judge() saw the verdict. This happens once per verdict, and only where steps are so short that
  // the kernel is not asked in each of them.
  std::optional<Verdict> late_verdict();

  // The last verdict while the worker is slow.
  const std::optional<Verdict>& verdict() const { return verdict_; }

 private:
  std::optional<SlowCause> cause() const;

  std::vector<StepLoad> healthy_, slow_;  // the newest of both kinds; slow ones since `since_`
  int64_t newest_ = -1;                   // step
  int64_t since_ = 0;                     // of the last verdict
  std::optional<Verdict> verdict_;
};

}  // namespace tenuto
