// A step on the virtual clock whose messages leave through the device's queue
// (ir/device_queue.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rehearsal/clocked_step.h"
#include "rehearsal/queued_messages.h"

namespace tenuto {

// The queue decides when compute ops and sends start. A receive is posted ahead of need, whatever
// the queue says: the queue decides only its virtual start, which a note carries to the sender.
class QueuedStep : public ClockedStep {
 public:
  // `order` is the order of the queue. All must outlive the pacer.
  QueuedStep(StepState& state, LinkClock& links, const std::vector<int32_t>& order)
      : ClockedStep(state, links), order_(order) {}
  Status begin(Duration at) override;
  std::optional<int32_t> next_end() override;
  bool may_start(int32_t index) override;
  std::optional<int32_t> next_start() override;
  Duration start(int32_t index) override;
  Stamp send(int32_t index, const Tag& tag) override;
  std::span<std::byte> note(int32_t index) override;
  void take_note(int32_t index) override;
  bool ended(int32_t index, Duration now, const Done& done) override;

 private:
  bool find_end(int32_t index);
  bool holds(int32_t index) const { return queue_->holds(index); }

  const std::vector<int32_t>& order_;
  std::optional<QueuedMessages> queue_;  // from begin() on
  std::vector<int32_t> ended_;           // messages whose end the loop has not been told
};

}  // namespace tenuto
