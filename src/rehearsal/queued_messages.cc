#include "rehearsal/queued_messages.h"

#include <utility>

namespace tenuto {

QueuedMessages::QueuedMessages(std::span<const Op> list, std::vector<int32_t> order,
                               bool split_backward, Duration origin)
    : list_(list),
      split_(split_backward),
      queue_(list, std::move(order), split_backward, origin),
      halves_(list.size()),
      notes_(list.size(), 0) {}

void QueuedMessages::offer(int32_t index, Duration at) {
  if (std::exchange(half(index).offered, true)) return;
  queue_.ready(index, at);
}

std::optional<DeviceQueue::Item> QueuedMessages::next() {
  const auto item = queue_.next();
  if (item) half(item->index).mine = item->start;
  return item;
}

std::optional<Duration> QueuedMessages::find_end(int32_t index) {
  Half& it = half(index);
  if (it.mine == kNotYet || it.theirs == kNotYet || it.way == kNotYet) return {};
  if (it.end == kNotYet) {
    const bool sends = list_[static_cast<size_t>(index)].kind == OpKind::Send;
    const Meeting ends =
        sends ? meet(split_, it.mine, it.theirs, it.way) : meet(split_, it.theirs, it.mine, it.way);
    it.end = sends ? ends.send_end : ends.recv_end;
    queue_.end(index, it.end);
  }
  if (!it.moved || std::exchange(it.told, true)) return {};
  return it.end;
}

}  // namespace tenuto
