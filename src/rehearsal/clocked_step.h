// A step on the virtual clock whose messages do not pass through the device's queue.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "rehearsal/link_clock.h"
#include "runtime/step_pacer.h"
#include "runtime/step_state.h"

namespace tenuto {

// The bytes of a message go at once; its stamp has the virtual arrival, which a LinkClock computes.
// The device has a virtual clock of its own (paced.h) and is told when the inputs of an op were
// there.
//
// Under ready dispatch the next op is chosen at a moment of the virtual clock. A message that
// arrives later on that clock does not count for the choice, even if its bytes are here already.
class ClockedStep : public StepPacer {
 public:
  // Both must outlive the pacer.
  ClockedStep(StepState& state, LinkClock& links);
  Status begin(Duration at) override;
  void begin_round() override { wake_at_ = {}; }
  std::optional<int32_t> next_end() override;
  bool may_start(int32_t index) override;
  std::optional<int32_t> next_start() override { return std::nullopt; }
  bool move_on() override;
  Duration wake_at() const override { return wake_at_; }
  Duration start(int32_t index) override;
  Stamp send(int32_t index, const Tag& tag) override;
  std::span<std::byte> note(int32_t) override { return {}; }
  void take_note(int32_t) override {}
  bool ended(int32_t index, Duration now, const Done& done) override;
  Stamp send_part(int32_t call, const ReductionCall& part, const Tag& tag) override;
  Duration part_end(int32_t call, Duration now) override;
  void reduced(Duration at) override { reduced_at_ = at; }

 protected:
  // When the last input of the op was there.
  Duration inputs_at(int32_t index) const;
  StepState& state() { return state_; }
  const LinkClock& links() const { return links_; }

 private:
  using Arrival = std::pair<int64_t, int32_t>;  // virtual arrival, place of the Recv

  StepState& state_;
  LinkClock& links_;
  const bool choosing_;         // the dispatch is ready
  std::vector<Duration> left_;  // when the last byte of a reduction's message left, by call
  // Receives that arrive later than the moment of the next choice, and that moment.
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> held_;
  Duration choice_at_{};
  Duration resumed_at_{};   // when the stored values of a resumed step were there
  Duration reduced_at_{};   // the end of the last reduction
  Duration wake_at_{};      // zero = no reason to wake before a report
  int32_t awaited_ = 0;     // receives for compute ops that are posted and not here
  bool computing_ = false;  // a compute op is under way
};

}  // namespace tenuto
