// Compute: what runs the ops between the messages. One face for libtorch on any device (engine/)
// and for the paced device (paced.h).
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

// What the Verdict said of a step; until Validate, what the norm up to the own stage says.
struct StepOutcome {
  double gradient_norm = 0;       // global, before clipping
  double learning_rate = 0;       // that the step used
  bool finite = true;             // false: the step was skipped, parameters are unchanged
  std::vector<MicroLoss> losses;  // of the micro-batches whose last stage ran here, by micro
};

// What is left of a step for one worker.
struct Remainder {
  std::vector<Value> stored;  // what its list begins with
  std::vector<StageId> back;  // stages whose Step is taken back, to be taken again
  // Gradients whose BackwardInput runs for them alone, for their weight gradients are in a sum
  // already: those without a BackwardWeight in the list. Whoever runs the list fills it in.
  std::vector<Value> unsummed;
};

// The newest version that no verdict can change any more, and what the verdict on its step was.
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
// StepAhead takes the step when the norm up to its own stage is plain (norm.h) and the parameters
// as they were otherwise; the version counts it either way. Validate, in the step after, makes that
// version final, or puts in its place what the whole norm asks for. What was computed of the step
// under way is then void (Finality::again): its other ops end at once, with values of the right
// size and any content, so that every message is sent and taken by the ordinary way; its StepAhead
// does nothing. The next begin() begins the same step again. A version is final before anybody
// evaluates, saves or takes a Step: the verdict can be passed on ahead of a step (Runner::settle).
class Compute {
 public:
  virtual ~Compute() = default;
  // Begins step `step` (version `step` of the parameters is here): sums are zero, no value is
  // stored. Void from the start if the verdict on the step before, passed on ahead, was not plain.
  virtual Status begin(int64_t step) = 0;
  // True when resume() may be called, and what is kept stays.
  virtual bool resumes() const { return false; }
  // In the place of discard(): the walk has freed the value, and it stays, for a resume(), until it
  // is dropped or the step after next begins.
  virtual void keep(const Value& value) { discard(value); }
  // A value that was kept is not needed any more.
  virtual void drop(const Value& value) { (void)value; }
  // Begins what is left of step `step`, of which some has been run here, and maybe some of the next
  // one: the stored values are there again, the sums of a stage are as they were if a partial of it
  // is stored and zero otherwise, everything else that was stored is gone. What the next step came
  // to is given up.
  //
  // Errors: Invalid/Call  a stored value is not here, or a sum is of other micro-batches; or
  //                       resumes() is false
  virtual Status resume(int64_t step, const Remainder& rest) {
    (void)rest;
    return invalid(cat("this device cannot go on with what is left of step ", step));
  }
  // Starts an op and returns at once; its report carries start and finish. `inputs_at` is when the
  // op's inputs were here on the nominal clock; a device with a real clock ignores it. At most one
  // op is under way at a time.
  virtual Status start(const Op& op, Duration inputs_at, Ticket ticket) = 0;
  // From the next op on ops last 1 / speed times as long as they take: a rehearsed slow worker. 1 =
  // as they are; requires speed in (0, 1].
  virtual void set_speed(double speed) = 0;
  // The moment on the nominal clock before which no op starts; zero on a real clock.
  virtual Duration nominal() const { return {}; }
  // The bytes of a value that is in the store, to send or to reduce: Activation, Gradient, Norm,
  // Verdict; for Partial with micro none: the worker's sum of the bucket, of sum_elements(). Valid
  // until discard.
  virtual Result<std::span<const std::byte>> bytes(const Value& value) = 0;
  // What brings values between the device's memory and the host; nullptr: bytes and rooms are the
  // host's. It lives as long as this.
  virtual Copies* copies() { return nullptr; }
  // Makes room for a value that will be received (Activation, Gradient, Norm, Verdict) or reduced
  // (Total, of sum_elements()). Valid until discard.
  virtual Result<std::span<std::byte>> room(const Value& value) = 0;
  // What a Partial and a Total are made of.
  virtual Element sum_elements() const { return Element::Float32; }
  // A Total is complete in its room: the sum over the group. Divides it by the micro-batch count of
  // the step.
  virtual Status reduced(const Value& total) = 0;
  // The walk has freed the value.
  virtual void discard(const Value& value) = 0;
  // What came out of the step that has just ended.
  virtual StepOutcome outcome() = 0;
  // Version of the parameters that is held: the number of steps taken since initialisation.
  virtual int64_t version() const = 0;
  // What of it is final.
  virtual Finality finality() = 0;
  // No step is void any more: a new epoch, in which all members begin with what is final.
  virtual void start_over() = 0;
  // Takes the last Step back, exactly; Invalid when there is none to take back.
  virtual Status undo() = 0;
  // Writes parameters and optimizer state of `stage`, which it holds, to `path` (safetensors),
  // durable when it returns; the file is not complete under another name before.
  virtual Status save(StageId stage, const std::string& path) = 0;
  // Reads parameters and optimizer state of what it holds from the shards in `paths`, which any
  // partition may have written.
  virtual Status load(const std::vector<std::string>& paths, int64_t version) = 0;
  // Parameters and optimizer state of `stage`, which it holds, as so many bytes: the same on each
  // holder that has the same version.
  virtual int64_t state_bytes(StageId stage) const = 0;
  // Parts of the state are made of whole units of so many bytes. A unit that was written stays
  // right over every update that is taken with the others, whatever else has not been written yet,
  // if all before it has been: an update of it reads only the gradient, what is before, and itself.
  virtual int64_t state_unit(StageId stage) const = 0;
  // Copies the part that begins at byte `first`, between two steps.
  // Requires: first and the size are multiples of state_unit, first + size <= state_bytes
  virtual Status read_state(StageId stage, int64_t first, std::span<std::byte> to) = 0;
  // Puts a part that was read from `first` on in its place; what is not written yet stays as it is.
  // The last Step cannot be taken back any more. Requires: as read_state
  virtual Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) = 0;
  // What is held counts as `version` from here on, whatever it is: a worker that comes to a run
  // takes every Step with the others, and what it is given of their state stays right.
  virtual Status adopt(int64_t version) = 0;
};

}  // namespace tenuto
