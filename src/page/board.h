// Where the coordinator puts snapshots for the page's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/unit.h"

namespace tenuto::page {

// The newest thing that one thread shows to another one. Only a pointer changes hands: neither side
// waits while the other one makes or reads what it points to.
template <class Shown>
class Board {
 public:
  // How often something new is due: while somebody looks, and otherwise.
  static constexpr Duration kWatched = std::chrono::milliseconds(250);
  static constexpr Duration kUnwatched = std::chrono::seconds(5);
  // Somebody looks who has looked within this time.
  static constexpr Duration kAttention = std::chrono::seconds(10);

  // Whether the thread that shows should show something new. `now`: on one clock in all calls.
  bool is_due(Duration now) const {
    if (!has_shown_) return true;
    const int64_t looked = looked_at_.load();
    const bool watched = looked >= 0 && now - Duration(looked) < kAttention;
    return now - shown_at_ >= (watched ? kWatched : kUnwatched);
  }
  // Shows it; the thread that asks is_due().
  void show(std::shared_ptr<const Shown> shown, Duration now) {
    shown_at_ = now;
    has_shown_ = true;
    const std::lock_guard<std::mutex> lock(mutex_);
    newest_.swap(shown);
  }
  // The newest; null before the first. Any thread.
  std::shared_ptr<const Shown> look(Duration now) {
    looked_at_ = now.count();
    const std::lock_guard<std::mutex> lock(mutex_);
    return newest_;
  }

 private:
  Duration shown_at_{};
  bool has_shown_ = false;
  std::atomic<int64_t> looked_at_{-1};  // -1 = nobody has
  std::mutex mutex_;                    // guards newest_ alone, and nothing else is locked under it
  std::shared_ptr<const Shown> newest_;
};

}  // namespace tenuto::page
