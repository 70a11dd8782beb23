#include "transport/tcp/spinner.h"

#include <sched.h>
#include <sys/resource.h>

#include <utility>

#include "base/clock.h"

namespace tenuto::tcp {

namespace {

// The cores that this process may use.
int32_t cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // A host with more cores than the set has place for has enough of them.
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

}  // namespace

Spinner::Spinner(WireProgress progress, std::shared_ptr<const std::atomic<int32_t>> workers)
    : progress_(progress), workers_(std::move(workers)), cores_(cores()) {}

Duration Spinner::until() {
  if (progress_ == WireProgress::Poll) return Duration::max();
  if (progress_ != WireProgress::Auto) return {};
  if (workers_ != nullptr && workers_->load(std::memory_order_relaxed) > cores_) return {};
  const Duration now = monotonic_clock().now();
  if (now < calm_until_) return {};
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const int64_t before = displaced_;
  displaced_ = usage.ru_nivcsw;
  if (before == displaced_) return now + kSpin;
  calm_until_ = now + kCalm;
  return {};
}

void Spinner::pause() { sched_yield(); }

}  // namespace tenuto::tcp
