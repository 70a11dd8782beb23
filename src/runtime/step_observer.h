// Who watches a step while it runs, and says how it stands with control.
#pragma once

#include <cstdint>

#include "base/id.h"
#include "base/mailbox.h"
#include "base/result.h"

namespace tenuto {

// What control says at this moment; read whenever the mailbox reports news from control.
struct Standing {
  int64_t committed = 0;  // the Step or StepAhead of step i waits for committed >= i
  bool abandon = false;   // stop in the middle of the step
};

// All calls come from the worker's thread, in the middle of the step. As it is, every step is
// committed and nobody is told anything.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Asked when step `step` starts and on news from control.
  virtual Standing standing(int64_t step) { return {step, false}; }
  // `peer` is lost: told once of each, also of peers that this step no longer needs.
  virtual void lost(WorkerId peer, const Error& error) { (void)peer, (void)error; }
  // An op has ended; `count` of the step have.
  virtual void ended(int64_t count) { (void)count; }
  // The Validates of the list have ended: version `step` is final.
  virtual void validated() {}
  // A report whose ticket is none of the step's.
  virtual void other(const Done& done) { (void)done; }
};

}  // namespace tenuto
