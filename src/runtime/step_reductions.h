// The reductions of one run of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "runtime/reduction.h"
#include "runtime/step_state.h"
#include "runtime/tally.h"

namespace tenuto {

// Runs each Reduce as messages, and checks its total before a Step can use it. Each message is a
// call, with its number in the ListTable.
//
// A Reduce whose sum grows may begin before the walk starts it, while the last op that adds to the
// sum computes. It ends only after the walk has started it.
class StepReductions {
 public:
  // `scratch` is memory of earlier runs, to be used again.
  StepReductions(StepState& state, std::vector<std::vector<int64_t>>& scratch)
      : state_(state),
        scratch_(scratch),
        running_(state.list.size()),
        started_(state.list.size()) {}
  // Starts the Reduce at `index`, or goes on with it if it has begun early. True when it has ended,
  // because it needs no messages or all have come.
  Result<bool> start(int32_t index);
  // Begins a Reduce of ListTable::growing() before the op that makes `last`, the weight gradient
  // which its sum does not have yet.
  Status begin_early(const ListTable::GrowingReduce& reduce, const Value& last);
  // So many leading parts of the sum of such a Reduce are complete since `at`, `before` of them
  // were complete earlier.
  Status grow(const ListTable::GrowingReduce& reduce, int32_t before, int32_t parts, Duration at);
  // All of its sum is complete since `at`.
  Status grow_to_end(const ListTable::GrowingReduce& reduce, Duration at);
  // The call of a message of the Reduce at `index` has ended well. True when the Reduce has, too.
  Result<bool> take(int32_t index, int32_t call, const Done& done);
  // True between the beginning and the end of the Reduce at `index`.
  bool is_under_way(int32_t index) const { return running_[static_cast<size_t>(index)] != nullptr; }
  // The peer of a message; -1 when its Reduce is not under way.
  WorkerId peer_of(int32_t call) const;
  // Never frees the memory of the reductions under way: the transport may still write to it.
  void keep_memory();

 private:
  Status begin(int32_t index, bool grows, const std::vector<Contribution>& brought);
  Status make_calls(int32_t index);
  Result<bool> end_if_done(int32_t index);
  Status make_call(const Op& reduce, int32_t call, const ReductionCall& part);
  Result<bool> finish(int32_t index);
  std::vector<Contribution> brought_to(const Op& reduce) const;
  Status audit(int32_t index) const;

  StepState& state_;
  std::vector<std::vector<int64_t>>& scratch_;
  std::vector<std::unique_ptr<Reduction>> running_;  // by place in the list; mostly null
  std::vector<bool> started_;                        // the same: by the walk
};

}  // namespace tenuto
