// StageCompute is the step loop's interface of a device: it runs the ops between the messages of a
// step. The other two interfaces of a device are optimizer.h and state_store.h; device.h has all
// three.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/text.h"
#include "ir/inventory.h"
#include "ir/op.h"
#include "runtime/element.h"

namespace tenuto {

// True for the kinds of values that neighbouring stages compute with: they are in the device's
// memory.
inline bool feeds_compute(ValueKind kind) {
  return kind == ValueKind::Activation || kind == ValueKind::Gradient;
}

// Runs all ops but Send, Recv and Reduce, and keeps the values that they make. Calls come from one
// thread, the worker's; reports go to the mailbox it was made with.
//
// StepAhead takes the optimizer step if the norm up to its own stage is plain (norm.h), else it
// leaves the parameters as they were; the version counts the step either way. Validate, in the step
// after, makes that version final, or replaces it by what the global norm asks for. In the latter
// case the step under way is void (Finality::again): its other ops end at once, with values of the
// right size and any content, so that every message is still sent and received; its StepAhead does
// nothing. The next begin() begins the same step again. A version must be final before it is
// evaluated or saved, and before a Step is taken; Runner::make_final runs the Validates ahead of
// their step for that.
class StageCompute {
 public:
  virtual ~StageCompute() = default;
  // Begins step `step` (version `step` of the parameters is here): sums are zero, no value is
  // stored. Data and dropout are those of the replica's iteration `step`. The step is void from its
  // start if the StepAhead before it left the parameters as they were, or if a Validate that ran
  // ahead of the step has changed them.
  //
  // Returns: the moment on the virtual clock before which no op starts; zero on a real clock
  virtual Result<Duration> begin(int64_t step) = 0;
  // Begins the rest of `step`. A part of `step` has run here, and maybe a part of the next step.
  // Puts the values of rest.stored into the store again, and removes all others. Keeps the sums of
  // a stage if rest.stored has a Partial of the stage, else sets them to zero. Forgets the outcome
  // of the next step.
  //
  // Returns: as begin()
  // Errors: Invalid/Call  a stored value is not here, or a sum is of other micro-batches; or
  //                       Device::resumes() is false
  virtual Result<Duration> resume(int64_t step, const RestPart& rest) {
    (void)rest;
    return invalid(cat("this device cannot go on with the rest of step ", step));
  }
  // Starts an op and returns at once; its report carries start and finish. `inputs_at` is when the
  // op's inputs were here on the virtual clock; a device with a real clock ignores it. At most one
  // op is under way at a time.
  virtual Status start(const Op& op, Duration inputs_at, Ticket ticket) = 0;
  // The bytes of a value that is in the store, to send or to reduce: Activation, Gradient, Norm,
  // ClipDecision. A Partial without a micro-batch names the worker's sum of a gradient bucket, in
  // elements of the type sum_elements(). Valid until discard.
  virtual Result<std::span<const std::byte>> bytes(const Value& value) = 0;
  // Allocates the memory of a value that will be received (Activation, Gradient, Norm,
  // ClipDecision) or reduced (Total, in elements of the type sum_elements()). Valid until discard.
  virtual Result<std::span<std::byte>> allocate(const Value& value) = 0;
  // The element type of a Partial and a Total.
  virtual Element sum_elements() const { return Element::Float32; }
  // The allocated memory of the Total now holds the sum over the group. The device divides it by
  // the micro-batch count of the step, at once or when an op first uses it.
  virtual Status reduced(const Value& total) = 0;
  // Frees a value that the list does not need any more.
  virtual void discard(const Value& value) = 0;
  // Called in place of discard(): the value stays, for a resume(), until drop() or until the step
  // after next begins.
  virtual void keep(const Value& value) { discard(value); }
  // A value that was kept is not needed any more.
  virtual void drop(const Value& value) { (void)value; }
};

}  // namespace tenuto
