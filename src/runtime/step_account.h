// What one stage has of a step beside the values that travel: which micro-batches' weight gradients
// are in its sum, and the step's outcome. All devices go on with a step by the rules that are here.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/text.h"
#include "runtime/compute.h"
#include "runtime/optimizer.h"

namespace tenuto {

// The account of one stage.
class StepAccount {
 public:
  explicit StepAccount(StageId stage) : stage_(stage) {}
  // A run of step `step` begins from nothing.
  void begin(int64_t step);
  // A run of what is left of `step` begins. The sum is used as a whole or not at all: if has_sum()
  // is false afterwards, the device must set it to zero.
  //
  // Errors: Invalid/Call  the sum is of other micro-batches than what is left begins with
  Status resume(int64_t step, const RestPart& rest);
  // The step that was begun or resumed last.
  int64_t step() const { return step_; }
  // True when weight gradients are in the sum.
  bool has_sum() const { return !summed_.empty(); }
  // False for a micro-batch whose backward runs for its input's gradient alone.
  bool adds(MicroId micro) const { return !unsummed_.contains(micro); }
  // The micro-batch's weight gradient is about to be added to the sum. It is noted before, so that
  // a sum whose last addition failed half-way matches no list of names and is not resumed.
  void add(MicroId micro) { summed_.insert(micro); }
  // Keeps one loss per micro-batch, also if its forward runs again. A held-out pass has the number
  // of the step after it: resume() of that step removes the losses of the pass.
  void note_loss(const MicroLoss& loss, bool held_out);
  // The outcome of the step, to be written.
  StepOutcome& outcome() { return outcome_; }
  // The same with losses in the order of micro-batches.
  const StepOutcome& sorted_outcome();

 private:
  const StageId stage_;
  int64_t step_ = 0;
  std::set<MicroId> summed_, unsummed_;
  std::set<MicroId> held_out_;    // of the losses of the newest step
  StepOutcome outcome_, before_;  // of the newest step, and of the one before
};

// Takes back the Step of the stage that `optimizer` is for, if what is left of the step asks for
// it.
//
// Errors: Invalid/Call  there is none; or the version is not one that can be in that step
Status take_back_for(Optimizer& optimizer, StageId stage, int64_t step, const RestPart& rest);

// Keeps the stashes, or the weight works, of a stage with which what is left of the step begins,
// and removes the others.
//
// Errors: Invalid/Call  one of them is not here
template <class Held>
Status keep_wanted(ValueKind kind, StageId stage, const std::vector<Value>& stored,
                   std::map<MicroId, Held>& held) {
  std::set<MicroId> wanted;
  for (const Value& value : stored) {
    if (value.kind == kind && value.stage == stage) wanted.insert(value.micro);
  }
  std::erase_if(held, [&](const auto& each) { return !wanted.contains(each.first); });
  if (held.size() == wanted.size()) return ok();
  return invalid(cat("stage ", stage, " has ", held.size(), " of the ", wanted.size(),
                     " stashes or weight works that what is left begins with"));
}

}  // namespace tenuto
