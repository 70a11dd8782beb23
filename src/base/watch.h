// Connects a long computation with the thread that waits for it: the computation tells its
// progress, the waiting thread tells when the time is over.
#pragma once

#include <atomic>
#include <cstdint>

namespace tenuto {

// Shared by the thread that computes and a thread that shows progress or counts time.
class Watch {
 public:
  // The computation begins a part of its work. `what` is a literal: "pricing", "trying orders".
  void begin(const char* what) {
    done_.store(0, std::memory_order_relaxed);
    part_.store(what, std::memory_order_relaxed);
  }
  // One more item of the present part is done.
  void count() { done_.fetch_add(1, std::memory_order_relaxed); }
  // A search calls this between two attempts: true once its time is over. The search then ends with
  // the best result that it has found.
  bool is_over() {
    if (!over_.load(std::memory_order_relaxed)) return false;
    heeded_.store(true, std::memory_order_relaxed);
    return true;
  }

  // The time of the search is over.
  void end() { over_.store(true, std::memory_order_relaxed); }
  // The present part; nullptr before the first.
  const char* part() const { return part_.load(std::memory_order_relaxed); }
  // How many items of the present part are done.
  int64_t done() const { return done_.load(std::memory_order_relaxed); }
  // True when a search was ended by end().
  bool was_heeded() const { return heeded_.load(std::memory_order_relaxed); }

 private:
  std::atomic<const char*> part_{nullptr};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> over_{false}, heeded_{false};
};

// Watch::is_over for a computation that may have no watch: nullptr means no limit.
inline bool is_over(Watch* watch) { return watch != nullptr && watch->is_over(); }
// Watch::begin; does nothing for nullptr.
inline void begin_part(Watch* watch, const char* what) {
  if (watch != nullptr) watch->begin(what);
}
// Watch::count; does nothing for nullptr.
inline void count_item(Watch* watch) {
  if (watch != nullptr) watch->count();
}

}  // namespace tenuto
