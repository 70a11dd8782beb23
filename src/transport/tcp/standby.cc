#include "transport/tcp/standby.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace tenuto::tcp {

Standby::~Standby() {
  if (timer_ >= 0) ::close(timer_);
}

Status Standby::open() {
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (timer_ >= 0) return ok();
  return Error{Code::Exhausted, Reach::Worker,
               "no more file descriptors for a wire: raise `ulimit -n`"};
}

void Standby::call_back(Duration after) {
  const int64_t count = std::max<int64_t>(after.count(), 1);  // zero would stop the timer
  itimerspec when{};
  when.it_value.tv_sec = count / 1'000'000'000;
  when.it_value.tv_nsec = count % 1'000'000'000;
  timerfd_settime(timer_, 0, &when, nullptr);
}

void Standby::wait() {
  uint64_t rings = 0;
  while (::read(timer_, &rings, sizeof(rings)) < 0 && errno == EINTR) continue;
}

}  // namespace tenuto::tcp
