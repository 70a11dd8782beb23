// A worker's place in its list. No clock and no I/O: check, price and the runtime all use it, so
// what an op waits for is decided in one place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/plan.h"

namespace tenuto {

// The lanes of one worker. Within a lane, list order (Compute under Dispatch::Ready: see Plan);
// between lanes, only values order. One send and one receive lane per peer and direction.
enum class LaneKind : uint8_t {
  Compute,
  Reduce,
  SendForward,
  SendBackward,
  RecvForward,
  RecvBackward
};

// One worker's list on its way from begin to end. The list is `schedule.lists[self]` of the plan's
// schedule or evaluation; both must outlive the walk.
class Walk {
 public:
  // Requires: `schedule` is plan.schedule or plan.evaluation, self is one of its lists.
  Walk(const Plan& plan, const Schedule& schedule, WorkerId self);
  // Indices into the list of ops that can start now: of each lane the next one, if all that it
  // reads is in the store. Valid until the next call that changes the walk.
  std::span<const int32_t> startable();
  // The op at `index` has started: its lane is taken (a receive's lane is free again at once:
  // receives are posted ahead).
  void start(int32_t index);
  // The op at `index` has ended: what it writes is here, what it frees is gone. Returns the freed
  // values.
  std::vector<Value> finish(int32_t index);
  // True when every op has ended.
  bool done() const;
  // The lane heads that cannot start: what a hang report prints.
  std::vector<int32_t> waiting() const;
  // What the op at `index` reads and is not here: the reason for a wait.
  std::vector<Value> missing(int32_t index) const;
  // The op at `index`.
  const Op& op(int32_t index) const;
  // The list as a whole.
  std::span<const Op> list() const;
};

}  // namespace tenuto
