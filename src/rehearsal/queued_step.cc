#include "rehearsal/queued_step.h"

namespace tenuto {

Status QueuedStep::begin(Duration at) {
  const StepInput& input = state().input;
  if (input.recovery.rest != nullptr) {
    return invalid("messages through the device's queue begin anew");
  }
  queue_.emplace(state().list, order_, input.plan->split_backward, at);
  return ok();
}

std::optional<int32_t> QueuedStep::next_end() {
  if (ended_.empty()) return std::nullopt;
  const int32_t index = ended_.back();
  ended_.pop_back();
  return index;
}

bool QueuedStep::may_start(int32_t index) {
  if (!holds(index) || state().op(index).kind == OpKind::Recv) return true;
  queue_->offer(index, inputs_at(index));
  return false;
}

std::optional<int32_t> QueuedStep::next_start() {
  const auto item = queue_->next();
  if (!item) return std::nullopt;
  if (state().op(item->index).kind == OpKind::Recv) {
    queue_->note_value(item->index) = item->start.count();
    if (find_end(item->index)) ended_.push_back(item->index);
  }
  return item->index;
}

Duration QueuedStep::start(int32_t index) {
  const Duration at = ClockedStep::start(index);
  return holds(index) && !is_message(state().op(index)) ? queue_->start_of(index) : at;
}

Stamp QueuedStep::send(int32_t index, const Tag& tag) {
  if (!holds(index)) return ClockedStep::send(index, tag);
  const Duration way = links().way(state().op(index).peer, {state().row(index).bytes}, tag);
  const Duration sent = queue_->start_of(index);
  queue_->set_way(index, way);
  return {sent, sent + way};
}

std::span<std::byte> QueuedStep::note(int32_t index) {
  if (!holds(index)) return {};
  return queue_->note(index);
}

void QueuedStep::take_note(int32_t index) {
  if (state().op(index).kind == OpKind::Recv) return;
  queue_->set_theirs(index, Duration(queue_->note_value(index)));
  if (find_end(index)) ended_.push_back(index);
}

bool QueuedStep::ended(int32_t index, Duration now, const Done& done) {
  const bool message = is_message(state().op(index));
  if (!holds(index) || !message) {
    const bool over = ClockedStep::ended(index, now, done);
    if (holds(index)) queue_->end(index, now);
    return over;
  }
  if (state().op(index).kind == OpKind::Recv) {
    queue_->set_theirs(index, done.sent);
    queue_->set_way(index, now - done.sent);
  }
  queue_->set_moved(index);
  return find_end(index);
}

// A message has ended when both its starts are known and its bytes have moved. Returns true once,
// when the message has ended, and notes its times then.
bool QueuedStep::find_end(int32_t index) {
  const auto end = queue_->find_end(index);
  if (!end) return false;
  state().row(index).start = queue_->start_of(index);
  state().row(index).finish = *end;
  return true;
}

}  // namespace tenuto
