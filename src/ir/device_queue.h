// The device queue of one worker, through which blocking messages leave: which item starts when.
// The rule of blocking messages is implemented only here; the price and the runtime both call it.
//
// Whole backward: the messages between two compute ops of a list (an exchange) start together, and
// the next compute op waits for all of them. Split backward: every op is an item of one launch
// queue. Its order is that of a simulated run in list order in which all compute ops take equally
// long and messages take no time; of two items at one time, a message goes before a compute op, and
// a gradient before an activation. An item starts when its inputs are present and all items before
// it have started. Messages between two workers, in either direction, go one at a time. Ops of the
// update (reductions, norm, clip decision, step) are not in the queue.
//
// The result does not depend on the order in which the caller visits workers: each start is the
// maximum of times that are final.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026, section 3 (head-of-line blocking);
//         docs/decisions/009-blocking-messages.md
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/plan.h"

namespace tenuto {

// When each end of a message finishes, once both sides have started it.
struct Meeting {
  Duration send_end{}, recv_end{};
};

// A message arrives `way` after its send starts, but not before its receive starts. With a whole
// backward the send ends when its receive has started; with a split backward it ends when the
// message arrives, because it occupies the pair's stream until then.
Meeting meet(bool split_backward, Duration send_start, Duration recv_start, Duration way);

// The order of each worker's queue: indices into its list.
//
// Requires: schedule is the plan's schedule or evaluation
// Errors:   Invalid/Job  a message without its other end
// Cost:     linear in the number of ops
Result<std::vector<std::vector<int32_t>>> device_orders(const Plan& plan, const Schedule& schedule);

// The progress of one worker's queue.
class DeviceQueue {
 public:
  // An item that starts.
  struct Item {
    int32_t index = -1;  // into the list
    Duration start{};
  };

  // `order` is from device_orders; nothing starts before `origin`. The list must outlive the queue.
  DeviceQueue(std::span<const Op> list, std::vector<int32_t> order, bool split_backward,
              Duration origin);
  // All inputs of the op are present since time `at`. Call it once for each item except receives,
  // which read nothing.
  void ready(int32_t index, Duration at);
  // The next item whose start time is known; none when ready() or end() must be called first.
  std::optional<Item> next();
  // The started item ends at `at`: for a compute op its end, for a message the end that meet()
  // gives for this side.
  void end(int32_t index, Duration at);
  // True for an op that is in the queue.
  bool holds(int32_t index) const { return held_[static_cast<size_t>(index)] != 0; }
  // The first item that has not ended (whole) or not started (split); -1 when the queue is empty.
  int32_t head() const { return place_ == order_.size() ? -1 : order_[place_]; }
  // The items in order.
  std::span<const int32_t> order() const { return order_; }

 private:
  bool is_message(int32_t index) const;
  std::optional<Item> begin(int32_t index, Duration at);
  std::optional<Item> next_exchange();
  std::optional<Item> next_launch();
  bool leave_exchange();

  std::span<const Op> list_;
  std::vector<int32_t> order_;
  const bool split_;
  size_t place_ = 0;                           // whole: of the running op or exchange
  std::vector<uint8_t> held_;                  // by index: in the queue
  std::vector<Duration> ready_, start_, end_;  // by index; kNotYet before
  Duration now_;                               // whole: when the last op or exchange ended
  Duration launched_;                          // split: when the last item started
  Duration free_at_;                           // split: when the compute stream is free
  bool computing_ = false;                     // a compute op has started and not ended
  std::map<WorkerId, Duration> streams_;       // split: when free again; kNotYet: taken
};

}  // namespace tenuto
