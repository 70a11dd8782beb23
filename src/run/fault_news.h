// The coordinator's side of injected faults: when each begins and ends, in a sentence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "world/fault.h"

namespace tenuto {

// An announcement: a fault begins or ends with `step`.
struct FaultNews {
  int64_t step = 0;
  std::string sentence;
  std::string starts = {};  // the worker to start now, as the fault names it; empty = none
  int32_t hog = -1;         // the job's fault of this number is a hog, which is to be started now,
  bool ends = false;        // or to be ended; -1 = none
};

// Announces a job's faults, each once. The workers themselves apply the faults, at the steps that
// the faults name; this only reports it. What the launcher has to do is in the news: to start a
// worker, and to start or end a hog.
class FaultAnnouncer {
 public:
  // `steps`: of the run; faults of later steps never begin. `faults`: of the job; must outlive it.
  FaultAnnouncer(const std::vector<Fault>& faults, int64_t steps)
      : faults_(faults), steps_(steps) {}
  // A previous coordinator has announced all that begins or ends up to this step.
  void take_up(int64_t step) { told_ = step; }
  // The new announcements when `open` is the next step to be run, in the order of the steps.
  // `wanted`: faults requested of the live run. Faults that were over before the first call are
  // never announced.
  std::vector<FaultNews> advance(int64_t open, const std::vector<Fault>& wanted = {});

 private:
  // `hog`: see FaultNews.
  void look(const Fault& fault, int32_t hog, int64_t open, std::vector<FaultNews>& news) const;

  const std::vector<Fault>& faults_;
  int64_t steps_;
  int64_t told_ = -1;  // all steps up to this one have been told
};

}  // namespace tenuto
