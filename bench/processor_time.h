// Processor time, for measurements that other processes of a busy machine should not lengthen.
#pragma once

#include <ctime>

namespace tenuto {

// What the calling thread has spent so far.
inline double processor_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

}  // namespace tenuto
