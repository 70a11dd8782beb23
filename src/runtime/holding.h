// The names of the values that a worker has of the steps that are not committed: of the step that
// it ran last, and of the one before as long as another worker may still be in that. When a worker
// is lost, what is left of a step follows from what the others have (adapt/salvage.h).
//
// A worker keeps what it made and sent until the step after next begins, because the receiver's
// copy is lost with the receiver. That takes the memory of two messages for each micro-batch, so
// there is a limit: beyond it the oldest are dropped. Then more of a step is left to do again.
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

  // A run of step `step` begins from nothing: what is held of the step before stays, what was held
  // of others is forgotten. `attempt`: the epoch in which the step begins this way.
  void begin(int64_t step, int64_t attempt);
  // A run of what is left of that attempt at `step` begins with the `stored` values: they are in
  // the store from here on. Other values of the step stay kept, if they are of that attempt; -1 =
  // they are. The stages in `back` count as not stepped.
  void resume(int64_t step, int64_t attempt, const std::vector<Value>& stored,
              const std::vector<StageId>& back);
  // Keeps a value that was sent. Returns the values that are dropped to free memory.
  std::vector<Value> keep(const Value& value, int64_t bytes);
  // The run has come to its end, or as far as it could: what is in the store, and which stages have
  // stepped.
  void end(std::vector<Value> stored, const std::vector<StageId>& stepped);

  // What the worker has of `step`, maybe nothing. With `whole_backward` the values that await a
  // BackwardWeight count as added to the sum.
  Inventory inventory(int64_t step, bool whole_backward) const;
  // The step of the newest run; -1 = none.
  int64_t step() const { return now_.step; }
  // The attempt that the values of `step` are of; -1 = the worker has nothing of it.
  int64_t attempt(int64_t step) const;
  // True when `step` is the one before that of the newest run.
  bool is_behind(int64_t step) const { return before_ && before_->step == step; }
  // Bytes that are kept now; the most that were; values that were dropped because the limit was
  // reached.
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
