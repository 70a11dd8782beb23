// The interface to the caller of a step while it runs: the step reports its progress, and asks what
// the coordinator has said.
#pragma once

#include <cstdint>

#include "base/id.h"
#include "base/mailbox.h"
#include "base/result.h"

namespace tenuto {

// What the coordinator has said up to now; asked again whenever the mailbox reports news from it.
struct Standing {
  int64_t committed = 0;  // the Step or StepAhead of a step waits for it: may_update (ir/version.h)
  bool abandon = false;   // stop in the middle of the step
};

// All calls come from the worker's thread, in the middle of the step. This base class commits every
// step and ignores all reports.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Asked when step `step` starts, and on news from the coordinator.
  virtual Standing standing(int64_t step) { return {step, false}; }
  // `peer` is lost: called once for each peer, also for those that this step no longer needs.
  virtual void lost(WorkerId peer, const Error& error) { (void)peer, (void)error; }
  // An op has ended; `count` ops of the step have ended by now.
  virtual void ended(int64_t count) { (void)count; }
  // The last backward of the list has begun, and the worker has nothing to do but to wait for it
  // and for messages.
  virtual void ends_soon() {}
  // The Validates of the list have ended: version `step` is final.
  virtual void validated() {}
  // A report whose ticket is none of the step's.
  virtual void other(const Done& done) { (void)done; }
};

}  // namespace tenuto
