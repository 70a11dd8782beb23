// The ops of a training step, and the values that they exchange.
#pragma once

#include <compare>
#include <cstdint>

#include "base/id.h"

namespace tenuto {

// What a worker can be asked to do. There is no fused backward: an engine that does not split runs
// the whole backward in BackwardInput and nothing in BackwardWeight (Plan::split_backward).
enum class OpKind : uint8_t {
  Forward,         // one stage's forward of one micro-batch, kept for its backward
  BackwardInput,   // gradient of the stage's input
  BackwardWeight,  // gradient of the stage's weights, added to the worker's sum in micro-batch
                   // order
  Send,            // moves a value to a peer
  Recv,            // takes a value from a peer
  Reduce,          // sums the weight gradients of the step over a group
  Measure,         // adds this stage's squared gradient norm to the sum from the next stage
  Step,            // the optimizer's update of one stage
  Evaluate,        // forward only, nothing kept: held-out loss
  // The staggered update: each stage steps as soon as its own gradients are complete; the norm of
  // all stages is checked later, in the next step.
  MeasureAhead,  // adds this stage's squared gradient norm to the sum from the previous stage
  StepAhead,     // one stage's update, taken unless the norm so far requires clipping or a skip
  Validate,      // confirms the previous step's StepAhead, or undoes it and takes the right one
};

// The kind of a value in a worker's store. A value is named by the stage that made it, at the
// sender and at the receiver.
enum class ValueKind : uint8_t {
  None,
  Activation,    // output of Forward or Evaluate (stage, micro); the next stage reads it
  Gradient,      // output of BackwardInput (stage, micro); the stage before reads it
  Stash,         // kept by Forward for its BackwardInput
  WeightWork,    // kept by BackwardInput for its BackwardWeight
  Partial,       // a token of 0 bytes: this micro-batch's weight gradient is in the worker's sum
  Total,         // weight gradient of the step, reduced over the group
  Norm,          // running squared norm. Measure's is over this stage and all later ones, and goes
                 // to the previous stage right behind the last gradient; MeasureAhead's is over
                 // this stage and all earlier ones
  ClipDecision,  // the norm of all stages, or "skip". The first stage's Measure makes it, and it
                 // travels in the direction of activations. In a staggered step the last stage's
                 // Validate makes it, for the previous step
};
inline constexpr int kValueKindCount = 9;

// The name of one value. `part` is the gradient bucket of a Partial or a Total; -1 = whole. In an
// Effect, micro = none and part = -1 in a read or a free mean "every such value of this list".
struct Value {
  ValueKind kind = ValueKind::None;
  int16_t part = -1;
  StageId stage;
  MicroId micro;
  auto operator<=>(const Value&) const = default;
};

// One entry of a worker's list. Small and trivially copyable: a plan may have 100 million of them.
struct Op {
  OpKind kind = OpKind::Forward;
  ValueKind moved = ValueKind::None;  // Send, Recv: what is moved
  int16_t part = -1;                  // Reduce: the gradient bucket; -1 = whole
  StageId stage;                      // of the op; of a Send or Recv: the stage that made the value
  MicroId micro;                      // none for Reduce, Measure, Step and what they move
  WorkerId peer;                      // Send: to whom; Recv: from whom
  GroupId group;                      // Reduce: among whom
  auto operator<=>(const Op&) const = default;
};

// True for a Send or a Recv.
inline bool is_message(OpKind kind) { return kind == OpKind::Send || kind == OpKind::Recv; }
inline bool is_message(const Op& op) { return is_message(op.kind); }

// True for an op of one micro-batch, which names it; false for an op of the whole step.
bool has_micro(const Op& op);

// True for ops that only the update needs: reductions, norm, clip decision, step.
bool is_update(const Op& op);

// True for a Step or a StepAhead.
inline bool is_step(OpKind kind) { return kind == OpKind::Step || kind == OpKind::StepAhead; }

// The value that a Send or Recv moves.
inline Value moved_value(const Op& op) { return {op.moved, op.part, op.stage, op.micro}; }

}  // namespace tenuto
