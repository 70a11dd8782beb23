// The device queue of one worker, for a step whose messages leave through it, and what the worker
// knows of the other ends of its messages.
//
// The bytes go at once; only the virtual times obey the queue (ir/device_queue.h). To compute them,
// each end must know when the other end has started the message: the bytes carry the start of the
// send in their stamp, and a note of eight bytes goes back with the start of the receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/device_queue.h"

namespace tenuto {

// Ops by their place in the worker's list.
class QueuedMessages {
 public:
  // Arguments as those of DeviceQueue.
  QueuedMessages(std::span<const Op> list, std::vector<int32_t> order, bool split_backward,
                 Duration origin);
  // True for an op that is in the queue.
  bool holds(int32_t index) const { return queue_.holds(index); }
  // All inputs of the compute op or send are there since `at`; only the first call counts.
  void offer(int32_t index, Duration at);
  // The next item that starts.
  std::optional<DeviceQueue::Item> next();
  // The start of an item that has started.
  Duration start_of(int32_t index) const { return half(index).mine; }
  // A compute op has ended.
  void end(int32_t index, Duration at) { queue_.end(index, at); }
  // What is known of a message's other end: when it started there, and how long the bytes take.
  void set_theirs(int32_t index, Duration start) { half(index).theirs = start; }
  void set_way(int32_t index, Duration way) { half(index).way = way; }
  // The call that moves the bytes has ended.
  void set_moved(int32_t index) { half(index).moved = true; }
  // The end of a message: returned once, when its bytes have moved and both starts are known. Tells
  // the queue the end earlier, as soon as both starts and the time of the bytes are known.
  std::optional<Duration> find_end(int32_t index);
  // Eight bytes for the note of a message: it holds the start of the receive.
  std::span<std::byte> note(int32_t index) {
    return std::as_writable_bytes(std::span(&notes_[static_cast<size_t>(index)], 1));
  }
  // The note as a number of ns.
  int64_t& note_value(int32_t index) { return notes_[static_cast<size_t>(index)]; }

 private:
  static constexpr Duration kNotYet{-1};
  // This worker's end of a message; for a compute op only `mine` and `offered` are used.
  struct Half {
    Duration mine = kNotYet, theirs = kNotYet, way = kNotYet, end = kNotYet;
    bool offered = false, moved = false, told = false;
  };
  Half& half(int32_t index) { return halves_[static_cast<size_t>(index)]; }
  const Half& half(int32_t index) const { return halves_[static_cast<size_t>(index)]; }

  std::span<const Op> list_;
  const bool split_;
  DeviceQueue queue_;
  std::vector<Half> halves_;
  std::vector<int64_t> notes_;
};

}  // namespace tenuto
