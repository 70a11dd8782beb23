#include "runtime/step_account.h"

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "ir/version.h"

namespace tenuto {

static_assert(
    kUpdatesAhead == 1,
    "outcomes, kept values (kept_values.h, holding.h), totals (engine/sums.h) and the back-up for "
    "one undo are of the newest step and of the one before: more updates ahead need more of them");

void StepAccount::begin(int64_t step) {
  // The held-out pass and the step after it have the same number.
  StepOutcome ended = std::exchange(outcome_, {});
  if (step_ != step) before_ = std::move(ended);
  step_ = step;
  held_out_.clear();
  summed_.clear();
  unsummed_.clear();
}

Status StepAccount::resume(int64_t step, const RestPart& rest) {
  if (step_ != step) {  // the sum is of another step: none of it may count for this one
    summed_.clear();
    outcome_ = step_ == step + 1 ? std::move(before_) : StepOutcome{};
  } else {
    std::erase_if(outcome_.losses,
                  [&](const MicroLoss& loss) { return held_out_.contains(loss.micro); });
  }
  held_out_.clear();
  step_ = step;
  unsummed_.clear();
  for (const Value& gradient : rest.unsummed) {
    if (gradient.stage == stage_) unsummed_.insert(gradient.micro);
  }
  std::set<MicroId> wanted;
  for (const Value& value : rest.stored) {
    if (value.kind == ValueKind::Partial && value.stage == stage_) wanted.insert(value.micro);
  }
  if (wanted.empty()) summed_.clear();
  if (wanted == summed_) return ok();
  return invalid(cat("the sum of stage ", stage_, " is of ", summed_.size(),
                     " micro-batches, and the rest of the step begins with ", wanted.size(),
                     " of them: expected the same micro-batches"));
}

void StepAccount::note_loss(const MicroLoss& loss, bool held_out) {
  if (held_out) {
    held_out_.insert(loss.micro);
  } else {
    held_out_.erase(loss.micro);
  }
  const auto same = [&](const MicroLoss& other) { return other.micro == loss.micro; };
  std::erase_if(outcome_.losses, same);
  outcome_.losses.push_back(loss);
}

const StepOutcome& StepAccount::sorted_outcome() {
  std::sort(outcome_.losses.begin(), outcome_.losses.end(),
            [](const MicroLoss& left, const MicroLoss& right) { return left.micro < right.micro; });
  return outcome_;
}

Status take_back_for(Optimizer& optimizer, StageId stage, int64_t step, const RestPart& rest) {
  if (contains(rest.back, stage)) {
    if (Status undone = optimizer.undo(); !undone.ok()) return undone;
  }
  const Version version{optimizer.version()};
  const Iteration again{step};
  if (again == iteration_on(version) || version == version_made_by(again)) return ok();
  return invalid(cat("the rest of step ", step, " begins on version ", version.value));
}

}  // namespace tenuto
