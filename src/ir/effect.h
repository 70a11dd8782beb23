// THE rule. What an op reads, writes and frees at its worker. Dependence, readiness, memory, leaks,
// double work and what a worker waits for all follow from this one function.
#pragma once

#include <array>
#include <cstddef>

#include "base/check.h"
#include "ir/op.h"
#include "ir/schedule.h"

namespace tenuto {

// A list of at most N values, without allocation.
template <class T, size_t N>
class InlineList {
 public:
  // Appends; requires size() < N.
  void push(const T& item) {
    CHECK(size_ < N, "an InlineList is full");
    items_[size_++] = item;
  }
  // Number of items.
  size_t size() const { return size_; }
  // First item.
  const T* begin() const { return items_.data(); }
  // One past the last item.
  const T* end() const { return items_.data() + size_; }

 private:
  std::array<T, N> items_{};
  size_t size_ = 0;
};

// What an op does to its worker's store: all of `read` must be there before it starts; at its end
// `write` appears and `free` goes. Writing a value that is there is double work.
struct Effect {
  InlineList<Value, 4> read, write, free;
};

// The effect of `op` in a model of `stage_count` stages.
//
// Forward (s,m)        reads and frees activation s-1; writes activation s (none at the last stage)
//                      and the stash
// BackwardInput (s,m)  reads and frees the stash and gradient s+1; writes gradient s (none at stage
//                      0) and the weight work
// BackwardWeight (s,m) reads and frees the weight work; writes a partial
// Send                 reads and frees its value (one of the whole step stays: others read it too)
// Recv                 writes its value
// Reduce (s,part)      reads every partial of the list; writes the total of the part
// Measure (s)          reads every total and norm s+1; writes norm s, at the first stage the
//                      verdict
// Step (s)             reads and frees every total and partial; reads the verdict
// MeasureAhead (s)     reads every total and norm s-1; writes norm s
// StepAhead (s)        reads and frees every total and partial; reads norm s and the verdict on the
//                      step before
// Validate (s)         at the last stage writes the verdict on the step before, elsewhere reads it
// Evaluate (s,m)       reads and frees activation s-1; writes activation s (none at the last stage)
Effect effect_of(const Op& op, int32_t stage_count);

// True for the names that, in a read or a free, mean every such value of the list: the partials and
// the totals of a stage.
bool means_every(const Value& value);

// True for values that live until the step ends instead of being freed by an op, because any number
// of ops may read them: the norm, which goes to as many holders of the stage before as take it from
// here, and the verdict, which goes on to other workers and is read by Step there.
bool lives_to_end(ValueKind kind);

// True for what tells of the step before in a staggered one: Validate, and the messages of its
// verdict. Only for ops of a staggered schedule.
bool is_validation(const Op& op);

// True when the stages of the schedule step as soon as they can (StepAhead), false when each waits
// for the norm of all.
//
// Cost: linear in the number of workers, for lists that end with their updates
bool is_staggered(const Schedule& schedule);

}  // namespace tenuto
