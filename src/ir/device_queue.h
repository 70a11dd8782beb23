// The device's queue of one worker, through which its messages leave when they block: what starts
// when. The rule of blocking messages stands here once; the price and the runtime both ask it.
//
// Whole backward: the messages between two compute ops of a list start together and are waited for.
// Split backward: every op is an item of the launch queue, in the order in which an undisturbed run
// with equal op times would do it, a message before a compute op, gradients before activations. An
// item starts when those before it have started; a send also waits for its value, and the messages
// between two workers, either way, go one after the other. Ops of the update (reductions, norm,
// verdict, step) are not in the queue.
//
// Nothing here depends on the order in which workers are looked at: each start is the largest of
// times that are known for good.
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

// The ends of a message, once both sides have started it.
struct Meeting {
  Duration send_end{}, recv_end{};
};

// A message takes `way` from the start of its send, and is there no sooner than its receive has
// started. With a whole backward a send lasts until its receive has started, with a split one as
// long as the message: the pair's stream is taken.
Meeting meet(bool split_backward, Duration send_start, Duration recv_start, Duration way);

// The order in which the queue of each worker is filled: indices into its list.
//
// Requires: schedule is the plan's schedule or evaluation
// Errors:   Invalid/Job  a message without its other end
// Cost:     linear in the number of ops
Result<std::vector<std::vector<int32_t>>> device_orders(const Plan& plan, const Schedule& schedule);

// One worker's queue on its way from begin to end.
class DeviceQueue {
 public:
  // An item that starts.
  struct Item {
    int32_t index = -1;  // into the list
    Duration start{};
  };

  // `order` as device_orders says; nothing starts before `origin`. The list must outlive the queue.
  DeviceQueue(std::span<const Op> list, std::vector<int32_t> order, bool split_backward,
              Duration origin);
  // All that the op reads is there since `at`. To be told once of each item but receives, which
  // read nothing.
  void ready(int32_t index, Duration at);
  // The next item of which it is known when it starts; none when something must be told before.
  std::optional<Item> next();
  // A compute op that has started ends at `at`; or the message has met its other end, and ends here
  // at `at`.
  void end(int32_t index, Duration at);
  // True for an op that is in the queue.
  bool holds(int32_t index) const { return held_[static_cast<size_t>(index)] != 0; }
  // What stands first and has not ended (whole) or not started (split); -1 when the queue is empty.
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
  size_t place_ = 0;                           // whole: of the op or exchange that is under way
  std::vector<uint8_t> held_;                  // by index: in the queue
  std::vector<Duration> ready_, start_, end_;  // by index; kNotYet before
  Duration now_;                               // whole: when the last op or exchange was over
  Duration launched_;                          // split: when the last item started
  Duration free_at_;                           // split: when the compute stream is free
  bool computing_ = false;                     // a compute op has started and not ended
  std::map<WorkerId, Duration> streams_;       // split: free again when; kNotYet: taken
};

}  // namespace tenuto
