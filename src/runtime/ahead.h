// Post-validation of the optimizer step of one stage: decides at StepAhead whether the step is
// taken before the global norm is known, and at Validate whether it is undone. All devices share
// these rules; each keeps its own parameters.
#pragma once

#include <cstdint>

#include "ir/op.h"
#include "runtime/norm.h"
#include "runtime/optimizer.h"

namespace tenuto {

// Decides what to do with the parameters; does not change them. compute.h says what a void step is.
class AheadUpdate {
 public:
  // What Validate has to do.
  enum class Ruling : uint8_t {
    Stands,  // nothing: no StepAhead is open, or its step was right
    Redo,    // undo the step if it was taken, and take it with the clipped gradients
    Skip,    // undo the step if it was taken
  };

  // `clip` is the norm that gradients are clipped to; 0 = never.
  explicit AheadUpdate(double clip) : clip_(clip) {}

  // Begins a run of a step, or a run of only its Validates before the step (Runner::make_final).
  // The step is void from its start if a Validate that ran before it changed the parameters, or if
  // the StepAhead of the step before did not update.
  void begin() {
    if (over_) again_ = over_ = false;
    void_ = again_ || pending_ == Pending::Held;
  }
  // True when an op must be computed: in a void step only Validate, which belongs to the step
  // before, and Evaluate, which belongs to the held-out pass.
  bool counts(OpKind kind) const {
    return !void_ || kind == OpKind::Validate || kind == OpKind::Evaluate;
  }
  // True between a StepAhead and its Validate.
  bool open() const { return pending_ != Pending::None; }
  // True when the open step was taken.
  bool taken() const { return pending_ == Pending::Taken; }

  // The StepAhead of a void step has come: it updates nothing.
  void pass() { over_ = true; }
  // StepAhead: decides by the norm up to this stage whether the step is taken. Requires: not void,
  // not open.
  bool decide(const RunningNorm& so_far) {
    so_far_ = so_far;
    const bool take = is_plain(whole_of(so_far), clip_);
    pending_ = take ? Pending::Taken : Pending::Held;
    return take;
  }
  // The clip decision that the last stage's Validate sends.
  WholeNorm clip_decision() const { return open() ? whole_of(so_far_) : WholeNorm{}; }
  // Validate: judges the open step by the clip decision. `version` is the present version of the
  // parameters.
  Ruling judge(const WholeNorm& clip_decision, int64_t version) {
    if (!open()) return Ruling::Stands;
    finality_ = finality_of(clip_decision, version);
    if (is_plain(clip_decision, clip_)) {
      pending_ = Pending::None;
      return Ruling::Stands;
    }
    again_ = void_ = true;
    return clip_decision.skip != 0 ? Ruling::Skip : Ruling::Redo;
  }
  // The device has done what judge asked for.
  void close() { pending_ = Pending::None; }

  // The version was reached by a Step with this clip decision.
  void set_stepped(const WholeNorm& clip_decision, int64_t version) {
    set_final(finality_of(clip_decision, version));
  }
  // The version was reached in another way: an undo, a load. Nothing is open any more.
  void set_final(const Finality& finality) {
    finality_ = finality;
    pending_ = Pending::None;
    start_over();
  }
  // No step is void any more; see Optimizer::start_over.
  void start_over() { again_ = over_ = void_ = false; }
  // See Optimizer::finality.
  Finality finality() const {
    Finality now = finality_;
    now.again = again_;
    return now;
  }

 private:
  enum class Pending : uint8_t { None, Taken, Held };

  Finality finality_of(const WholeNorm& clip_decision, int64_t version) const {
    return {version, false, clip_decision.norm, clip_decision.skip == 0,
            !is_plain(clip_decision, clip_)};
  }

  double clip_;
  Pending pending_ = Pending::None;
  RunningNorm so_far_;
  bool void_ = false;
  bool again_ = false;  // the step has to be run again; begin() resets it after the void run
  bool over_ = false;   // the void run of the step has come to its StepAhead
  Finality finality_;
};

}  // namespace tenuto
