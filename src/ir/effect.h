// What an op reads, writes and frees at its worker. Dependence, readiness, memory, leaks, double
// work and what a worker waits for are all derived from this one function.
#pragma once

#include <array>
#include <cstddef>

#include "base/check.h"
#include "ir/op.h"

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

// What an op does to its worker's store: all of `read` must be present before it starts; when it
// ends, `write` is added and `free` is removed. Writing a value that is present is double work.
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
// Send                 reads its value; frees it if it is of a micro-batch (other ops may still
//                      read a value of the whole step)
// Recv                 writes its value
// Reduce (s,part)      reads every partial of the list; writes the total of the part
// Measure (s)          reads every total and norm s+1; writes norm s (at the first stage the
//                      clip decision instead)
// Step (s)             reads and frees every total; frees every partial; reads the clip decision
// MeasureAhead (s)     reads every total and norm s-1; writes norm s
// StepAhead (s)        reads and frees every total; frees every partial; reads norm s and the
//                      clip decision on the previous step
// Validate (s)         at the last stage writes the clip decision on the previous step, elsewhere
//                      reads it
// Evaluate (s,m)       reads and frees activation s-1; writes activation s (none at the last stage)
Effect effect_of(const Op& op, int32_t stage_count);

// True for a name that, in a read or a free, stands for every such value of the list: all partials
// or all totals of a stage.
bool means_every(const Value& value);

// True for values that no op frees, so that they live until the step ends, because any number of
// ops may read them: the norm, which several holders of the neighbouring stage may take from this
// worker, and the clip decision, which is forwarded to other workers and read by Step.
bool lives_to_end(ValueKind kind);

// True for ops of a staggered step that concern the previous step: Validate, and the messages of
// its clip decision. Only for ops of a staggered schedule.
bool is_validation(const Op& op);

}  // namespace tenuto
