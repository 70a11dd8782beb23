// Clocks. Code that needs the time takes a Clock, so that a test can set the time by hand.
#pragma once

#include <atomic>

#include "base/unit.h"

namespace tenuto {

// A source of moments. Moments of the same clock may be compared, moments of two clocks never.
class Clock {
 public:
  virtual ~Clock() = default;
  // The present moment; never goes back. Any thread.
  virtual Duration now() const = 0;
};

// CLOCK_MONOTONIC: the same clock for all processes of one machine.
class MonotonicClock : public Clock {
 public:
  Duration now() const override;
};

// A clock that a test moves by hand.
class HandClock : public Clock {
 public:
  Duration now() const override { return Duration(moment_.load()); }
  // Moves the clock forward.
  void advance(Duration by) { moment_ += by.count(); }

 private:
  std::atomic<int64_t> moment_{0};
};

// The process-wide MonotonicClock.
const Clock& monotonic_clock();

// Sleeps until the monotonic clock shows `moment`, to the precision of the timer (call
// sharpen_timer once in the thread for microseconds).
void sleep_until(Duration moment);

// Asks the kernel to wake the calling thread at the exact moment instead of up to 50 us later, as
// it may do by default (Linux: timer slack 1 ns).
void sharpen_timer();

}  // namespace tenuto
