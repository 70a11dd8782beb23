#include "rehearsal/clocked_step.h"

#include <algorithm>

#include "runtime/reduction.h"
#include "runtime/step_values.h"

namespace tenuto {

ClockedStep::ClockedStep(StepState& state, LinkClock& links)
    : state_(state),
      links_(links),
      choosing_(state.input.plan->dispatch == Dispatch::Ready),
      left_(static_cast<size_t>(state.table.call_count())) {}

Status ClockedStep::begin(Duration at) {
  if (state_.input.recovery.rest != nullptr) resumed_at_ = at;
  return ok();
}

// The receives that are here on the virtual clock at the moment of the choice.
std::optional<int32_t> ClockedStep::next_end() {
  if (held_.empty() || held_.top().first > choice_at_.count()) return std::nullopt;
  const int32_t index = held_.top().second;
  held_.pop();
  return index;
}

// A message may have arrived on the virtual clock and still be on its way in real time. If such a
// message could change which op is chosen, the choice waits in real time, at most for the patience
// of the links. The op's start on the virtual clock stays the same.
bool ClockedStep::may_start(int32_t index) {
  const OpKind kind = state_.op(index).kind;
  const bool changeable = kind == OpKind::Forward || kind == OpKind::BackwardWeight;
  if (!choosing_ || !changeable || awaited_ == 0) return true;
  const Duration until = choice_at_ + links_.patience();
  if (state_.machine.clock->now() >= until) return true;
  wake_at_ = until;
  return false;
}

// Nothing can be computed at the moment of the choice: moves it on to the next virtual arrival.
bool ClockedStep::move_on() {
  if (!choosing_ || computing_ || held_.empty()) return false;
  const Duration next{held_.top().first};
  const Duration until = next + links_.patience();
  if (awaited_ > 0 && state_.machine.clock->now() < until) {
    wake_at_ = until;
    return false;
  }
  choice_at_ = next;
  return true;
}

Duration ClockedStep::inputs_at(int32_t index) const {
  Duration at = resumed_at_;
  for (const int32_t producer : state_.table.producers(index)) {
    at = std::max(at, state_.row(producer).finish);
  }
  return at;
}

Duration ClockedStep::start(int32_t index) {
  const Op& it = state_.op(index);
  if (it.kind == OpKind::Recv) {
    awaited_ += feeds_compute(it.moved);
    return {};
  }
  const Duration at = inputs_at(index);
  if (it.kind != OpKind::Reduce) {
    computing_ = true;
    return at;
  }
  return state_.row(index).start = std::max(at, reduced_at_);  // one reduction after the other
}

Stamp ClockedStep::send(int32_t index, const Tag& tag) {
  OpRow& my = state_.row(index);
  const Passage passage = links_.send(state_.op(index).peer, {my.bytes}, inputs_at(index), tag);
  my.start = passage.start;
  my.finish = passage.finish;
  return {passage.start, passage.arrival};
}

bool ClockedStep::ended(int32_t index, Duration now, const Done&) {
  const Op& it = state_.op(index);
  if (it.kind == OpKind::Send) return true;
  state_.row(index).finish = now;
  if (it.kind != OpKind::Recv) {
    computing_ = false;
    if (it.kind != OpKind::Validate) choice_at_ = std::max(choice_at_, now);
    return true;
  }
  if (!feeds_compute(it.moved)) return true;
  --awaited_;
  if (!choosing_ || (!computing_ && now <= choice_at_)) return true;
  held_.emplace(now.count(), index);
  return false;
}

Stamp ClockedStep::send_part(int32_t call, const ReductionCall& part, const Tag& tag) {
  const Bytes size{static_cast<int64_t>(part.source.size())};
  const Passage passage = links_.send(part.peer, size, part.ready, tag);
  left_[static_cast<size_t>(call)] = passage.finish;
  return {passage.start, passage.arrival};
}

Duration ClockedStep::part_end(int32_t call, Duration now) {
  const Duration left = left_[static_cast<size_t>(call)];
  return left.count() != 0 ? left : now;
}

}  // namespace tenuto
