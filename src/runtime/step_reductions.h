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
class StepReductions {
 public:
  // `scratch` is memory of earlier runs, to be used again.
  StepReductions(StepState& state, std::vector<std::vector<int64_t>>& scratch)
      : state_(state), scratch_(scratch), running_(state.list.size()) {}
  // Starts the Reduce at `index`. True when it has ended, because it needs no messages.
  Result<bool> start(int32_t index);
  // The call of a message of the Reduce at `index` has ended well. True when the Reduce has, too.
  Result<bool> take(int32_t index, int32_t call, const Done& done);
  // True between the start and the end of the Reduce at `index`.
  bool is_under_way(int32_t index) const { return running_[static_cast<size_t>(index)] != nullptr; }
  // The peer of a message; -1 when its Reduce is not under way.
  WorkerId peer_of(int32_t call) const;
  // Never frees the memory of the reductions under way: the transport may still write to it.
  void keep_memory();

 private:
  Result<bool> make_calls(int32_t index, Reduction& reduction);
  Status make_call(const Op& reduce, int32_t call, const ReductionCall& part);
  Result<bool> finish(int32_t index);
  std::vector<Contribution> brought_to(const Op& reduce) const;
  Status audit(int32_t index) const;

  StepState& state_;
  std::vector<std::vector<int64_t>>& scratch_;
  std::vector<std::unique_ptr<Reduction>> running_;  // by place in the list; mostly null
};

}  // namespace tenuto
