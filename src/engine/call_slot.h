// How the worker's thread gives ops to the compute thread of a stage.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/unit.h"

namespace tenuto {

// Hands ops from the worker's thread to a compute thread, one at a time.
template <class Call>
class CallSlot {
 public:
  // Gives a call to the compute thread. Requires: no call is under way.
  void start(Call call) {
    {
      const std::lock_guard lock(mutex_);
      CHECK(!busy_, "one op at a time");
      call_ = std::move(call);
      busy_ = true;
    }
    changed_.notify_all();
  }
  // The compute thread waits here for its next call; none after close().
  std::optional<Call> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || call_; });
    if (closed_) return std::nullopt;
    return std::exchange(call_, std::nullopt);
  }
  // The compute thread has ended the call.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  }
  // Waits until no call is under way; false if one still is after `limit`.
  bool wait_idle(Duration limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return !busy_; });
  }
  // Ends the compute thread after its call.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards what follows; nothing is locked under it
  std::condition_variable changed_;
  std::optional<Call> call_;
  bool busy_ = false, closed_ = false;
};

}  // namespace tenuto
