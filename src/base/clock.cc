#include "base/clock.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace tenuto {

Duration MonotonicClock::now() const {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

const Clock& monotonic_clock() {
  static const MonotonicClock clock;
  return clock;
}

void sleep_until(Duration moment) {
  constexpr int64_t kSecond = 1'000'000'000;
  timespec time{};
  time.tv_sec = moment.count() / kSecond;
  time.tv_nsec = moment.count() % kSecond;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

void sharpen_timer() { prctl(PR_SET_TIMERSLACK, 1UL); }

}  // namespace tenuto
