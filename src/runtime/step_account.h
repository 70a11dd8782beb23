// What one stage has of a step beside the values that travel: which micro-batches' weight gradients
// are in its sum, and the step's outcome. All devices resume a step by these rules.
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
  // A run of the whole step `step` begins.
  void begin(int64_t step);
  // A run of what is left of `step` begins. The sum is used as a whole or not at all: if has_sum()
  // is false afterwards, the device must set it to zero.
  //
  // Errors: Invalid/Call  the micro-batches in the sum are not those of the Partials in rest.stored
  Status resume(int64_t step, const RestPart& rest);
  // The step that was begun or resumed last.
  int64_t step() const { return step_; }
  // True when weight gradients are in the sum.
  bool has_sum() const { return !summed_.empty(); }
  // False for a micro-batch whose backward runs for its input's gradient alone.
  bool adds(MicroId micro) const { return !unsummed_.contains(micro); }
  // The micro-batch's weight gradient is about to be added to the sum. It is noted first: if the
  // addition fails half-way, rest.stored does not list the micro-batch, and resume() refuses the
  // sum.
  void add(MicroId micro) { summed_.insert(micro); }
  // Keeps one loss per micro-batch, also if its forward runs again. A held-out pass has the number
  // of the step after it: resume() of that step removes the losses of the pass.
  void note_loss(const MicroLoss& loss, bool held_out);
  // The outcome of the step, into which the device writes.
  StepOutcome& outcome() { return outcome_; }
  // The same with losses in the order of micro-batches.
  const StepOutcome& sorted_outcome();

 private:
  const StageId stage_;
  int64_t step_ = 0;
  std::set<MicroId> summed_, unsummed_;
  std::set<MicroId> held_out_;    // those whose loss in outcome_ is of a held-out pass
  StepOutcome outcome_, before_;  // of the newest step, and of the one before
};

// Undoes the Step of `stage` if `rest` asks for it; `optimizer` is that of the stage.
//
// Errors: Invalid/Call  there is no Step to undo; or the version is neither `step` nor `step` + 1
Status take_back_for(Optimizer& optimizer, StageId stage, int64_t step, const RestPart& rest);

// Removes from `held`, which are the stashes or the weight works of a stage, all that are not in
// `stored`.
//
// Errors: Invalid/Call  one in `stored` is missing
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
