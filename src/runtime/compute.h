// Compute runs the ops between the messages. One interface for libtorch on any device (engine/) and
// for the paced device (paced.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/text.h"
#include "ir/op.h"
#include "runtime/copies.h"
#include "runtime/element.h"

namespace tenuto {

// The loss of one micro-batch, in nats per target (per byte for byte-level text).
struct MicroLoss {
  MicroId micro;
  double loss = 0;
};

// The outcome of a step by its ClipDecision; before Validate, by the norm up to the worker's own
// stage.
struct StepOutcome {
  double gradient_norm = 0;       // global, before clipping
  double learning_rate = 0;       // that the step used
  bool finite = true;             // false: the step was skipped, parameters are unchanged
  std::vector<MicroLoss> losses;  // of the micro-batches whose last stage ran here, by micro
};

// What is left of a step for one worker.
struct Remainder {
  std::vector<Value> stored;  // the values that its list begins with
  std::vector<StageId> back;  // stages whose Step is taken back, to be taken again
  // Gradients whose BackwardInput runs for these alone, because their weight gradients are in a sum
  // already: the list has no BackwardWeight for them. The run of the list fills this in.
  std::vector<Value> unsummed;
};

// The newest version that no clip decision can change any more, and what the clip decision on its
// step was.
struct Finality {
  int64_t version = 0;
  bool again = false;        // Validate has changed the parameters that the step under way began
                             // with: all of it is void and has to be run again
  double gradient_norm = 0;  // as StepOutcome
  bool finite = true;
  bool clipped = false;  // the gradients were scaled down, or are not finite
};

// Runs Forward, BackwardInput, BackwardWeight, Measure, Step and Evaluate, and keeps the values
// that they make. Calls come from one thread, the worker's; reports go to the mailbox it was made
// with.
//
// StepAhead takes the optimizer step if the norm up to its own stage is plain (norm.h), else it
// leaves the parameters as they were; the version counts the step either way. Validate, in the step
// after, makes that version final, or replaces it by what the global norm asks for. In the latter
// case the step under way is void (Finality::again): its other ops end at once, with values of the
// right size and any content, so that every message is still sent and received; its StepAhead does
// nothing. The next begin() begins the same step again. A version is final before it is evaluated
// or saved and before a Step is taken: the clip decision can be passed on ahead of a step
// (Runner::settle).
class Compute {
 public:
  virtual ~Compute() = default;
  // Begins step `step` (version `step` of the parameters is here): sums are zero, no value is
  // stored. Void from the start if the clip decision on the step before, passed on ahead, was not
  // plain.
  virtual Status begin(int64_t step) = 0;
  // True when resume() may be called, and kept values stay.
  virtual bool resumes() const { return false; }
  // Called in place of discard() when the walk has freed the value: it stays, for a resume(), until
  // it is dropped or the step after next begins.
  virtual void keep(const Value& value) { discard(value); }
  // A value that was kept is not needed any more.
  virtual void drop(const Value& value) { (void)value; }
  // Begins what is left of step `step`, of which a part has been run here, and maybe a part of the
  // next step. The stored values are in the store again. The sums of a stage are as they were if a
  // Partial of it is stored, else zero. All other stored values are gone, and so is the outcome of
  // the next step.
  //
  // Errors: Invalid/Call  a stored value is not here, or a sum is of other micro-batches; or
  //                       resumes() is false
  virtual Status resume(int64_t step, const Remainder& rest) {
    (void)rest;
    return invalid(cat("this device cannot go on with what is left of step ", step));
  }
  // Starts an op and returns at once; its report carries start and finish. `inputs_at` is when the
  // op's inputs were here on the virtual clock; a device with a real clock ignores it. At most one
  // op is under way at a time.
  virtual Status start(const Op& op, Duration inputs_at, Ticket ticket) = 0;
  // From the next op on each op lasts 1 / speed times its own length, to rehearse a slow worker; 1
  // = unchanged. Requires speed in (0, 1].
  virtual void set_speed(double speed) = 0;
  // The moment on the virtual clock before which no op starts; zero on a real clock.
  virtual Duration virtual_now() const { return {}; }
  // The bytes of a value that is in the store, to send or to reduce: Activation, Gradient, Norm,
  // ClipDecision. A Partial without a micro-batch is the worker's sum of the bucket, of
  // sum_elements(). Valid until discard.
  virtual Result<std::span<const std::byte>> bytes(const Value& value) = 0;
  // Copies values between the device's memory and the host's; nullptr: bytes and room are the
  // host's memory. It lives as long as this.
  virtual Copies* copies() { return nullptr; }
  // Makes room for a value that will be received (Activation, Gradient, Norm, ClipDecision) or
  // reduced (Total, of sum_elements()). Valid until discard.
  virtual Result<std::span<std::byte>> room(const Value& value) = 0;
  // The element type of a Partial and a Total.
  virtual Element sum_elements() const { return Element::Float32; }
  // The Total is complete in its room: it is the sum over the group. Divides it by the micro-batch
  // count of the step.
  virtual Status reduced(const Value& total) = 0;
  // The walk has freed the value.
  virtual void discard(const Value& value) = 0;
  // The outcome of the step that has just ended.
  virtual StepOutcome outcome() = 0;
  // Version of the parameters that is held: the number of steps taken since initialisation.
  virtual int64_t version() const = 0;
  // The newest final version and the clip decision on its step.
  virtual Finality finality() = 0;
  // No step is void any more: a new epoch, in which all members begin with what is final.
  virtual void start_over() = 0;
  // Takes the last Step back, exactly; Invalid when there is none to take back.
  virtual Status undo() = 0;
  // Writes parameters and optimizer state of `stage`, which it holds, to `path` (safetensors). The
  // file is durable when this returns, and `path` never names an incomplete one.
  virtual Status save(StageId stage, const std::string& path) = 0;
  // Reads parameters and optimizer state of what it holds from the shards in `paths`, which any
  // partition may have written.
  virtual Status load(const std::vector<std::string>& paths, int64_t version) = 0;
  // Parameters and optimizer state of `stage`, which it holds, as so many bytes: the same on each
  // holder that has the same version.
  virtual int64_t state_bytes(StageId stage) const = 0;
  // Parts of the state are made of whole units of so many bytes. A unit that was written stays
  // right through every Step that is taken with the others, if all units before it were written
  // too: the update of a unit reads only the gradient, the units before it, and itself.
  virtual int64_t state_unit(StageId stage) const = 0;
  // Copies the part that begins at byte `first`, between two steps.
  // Requires: first and the size are multiples of state_unit, first + size <= state_bytes
  virtual Status read_state(StageId stage, int64_t first, std::span<std::byte> to) = 0;
  // Writes a part that read_state has read from `first` on; the rest of the state stays as it is.
  // The last Step cannot be taken back any more. Requires: as read_state
  virtual Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) = 0;
  // What is held counts as `version` from here on, whatever it is. A worker that joins a run takes
  // every Step with the others, so that the parts of their state that it is given stay right.
  virtual Status adopt(int64_t version) = 0;
};

}  // namespace tenuto
