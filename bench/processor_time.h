// Processor time, for measurements that other processes of a busy machine should not lengthen.
#pragma once

#include <ctime>

namespace tenuto {

// The milliseconds on a clock that counts processor time.
inline double milliseconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// What the calling thread has spent so far.
inline double processor_milliseconds() { return milliseconds_of(CLOCK_THREAD_CPUTIME_ID); }

// What all threads of this process have spent so far.
inline double process_milliseconds() { return milliseconds_of(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace tenuto
