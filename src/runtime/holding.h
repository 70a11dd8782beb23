// The names of the values that a worker has of the steps that are not committed: of the step that
// it ran last, and of the step before as long as another worker may still run that one. When a
// worker is lost, adapt/salvage.h finds what is left of a step from the names that the others hold.
//
// A worker keeps each value that it made and sent until the step after next begins, because the
// receiver's copy is lost with the receiver. That takes the memory of two messages for each
// micro-batch, so there is a limit: beyond it the oldest values are dropped. After a loss more of
// the step must then be run again.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "ir/inventory.h"

namespace tenuto {

// The values that one worker holds. Written by its StepRun; the values themselves are with
// StageCompute.
class Holding {
 public:
  // At most `limit` bytes of what was sent are kept of a step.
  explicit Holding(int64_t limit) : limit_(limit) {}

  // A run of the whole step `step` begins: what is held of the step before stays, what was held of
  // other steps is forgotten. `attempt` names this attempt at the step: the epoch in which it
  // begins.
  void begin(int64_t step, int64_t attempt);
  // A run of what is left of an attempt at `step` begins. The `stored` values are in the store from
  // here on; kept values of the step that are not among them stay kept if they are of the same
  // attempt, or if `attempt` is -1. The Step of the stages in `back` is undone: they count as not
  // stepped.
  void resume(int64_t step, int64_t attempt, const std::vector<Value>& stored,
              const std::vector<StageId>& back);
  // Keeps a value that was sent. Returns the values that are dropped to free memory.
  std::vector<Value> keep(const Value& value, int64_t bytes);
  // The run has ended or failed: `stored` is what is in the store now, `stepped` the stages whose
  // Step has ended.
  void end(std::vector<Value> stored, const std::vector<StageId>& stepped);

  // What the worker has of `step`, maybe nothing. `whole_backward`: the backward is not split, so a
  // WeightWork counts as a Partial: its gradient is in the sum.
  Inventory inventory(int64_t step, bool whole_backward) const;
  // The step of the newest run; -1 = none.
  int64_t step() const { return now_.step; }
  // The attempt at `step` whose values the worker has; -1 = it has nothing of `step`.
  int64_t attempt(int64_t step) const;
  // True when `step` is the one before that of the newest run.
  bool is_behind(int64_t step) const { return before_ && before_->step == step; }
  // Bytes that are kept now; the most that ever were; how many values the limit made it drop.
  int64_t bytes() const { return now_.bytes + (before_ ? before_->bytes : 0); }
  int64_t most_bytes() const { return most_; }
  int64_t dropped() const { return dropped_; }

 private:
  struct Kept {
    Value value;
    int64_t bytes = 0;
  };
  struct OfStep {
    int64_t step = -1, attempt = -1;
    std::vector<Value> stored;
    std::deque<Kept> kept;  // oldest first
    std::vector<StageId> stepped;
    int64_t bytes = 0;  // of what is kept
  };

  // What is held of a step; null: nothing.
  const OfStep* of_step(int64_t step) const;

  int64_t limit_;
  OfStep now_;
  std::optional<OfStep> before_;
  int64_t most_ = 0, dropped_ = 0;
};

}  // namespace tenuto
