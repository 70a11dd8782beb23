#include "base/mailbox.h"

#include <utility>

#include "base/clock.h"

namespace tenuto {

void QueueMailbox::post(Done done) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(done));
    count_ = queue_.size();
    if (std::exchange(asleep_, false)) driver_->wake();
  }
  arrived_.notify_one();
}

Result<Done> QueueMailbox::wait(Duration limit) {
  std::unique_lock lock(mutex_);
  if (queue_.empty() && driver_ != nullptr) {
    const Duration now = monotonic_clock().now();
    const Duration until = limit < Duration::max() - now ? now + limit : Duration::max();
    do {
      MailboxDriver& driver = *driver_;
      lock.unlock();
      driver.drive(until);
      lock.lock();
    } while (queue_.empty() && monotonic_clock().now() < until);
    limit = Duration{};
  }
  if (!arrived_.wait_for(lock, limit, [this] { return !queue_.empty(); })) {
    return Error{Code::Timeout, Reach::Call, "no call completed within the time limit"};
  }
  Done done = std::move(queue_.front());
  queue_.pop_front();
  count_ = queue_.size();
  return done;
}

bool QueueMailbox::set_driver(MailboxDriver* driver) {
  const std::lock_guard lock(mutex_);
  if (driver != nullptr && driver_ != nullptr) return false;
  driver_ = driver;
  return true;
}

bool QueueMailbox::begin_sleep() {
  const std::lock_guard lock(mutex_);
  asleep_ = queue_.empty();
  return asleep_;
}

void QueueMailbox::end_sleep() {
  const std::lock_guard lock(mutex_);
  asleep_ = false;
}

void QueueMailbox::sleep(Duration until) {
  std::unique_lock lock(mutex_);
  const auto called = [this] { return nudged_ || !queue_.empty(); };
  if (until == Duration::max()) {
    arrived_.wait(lock, called);
  } else {
    arrived_.wait_for(lock, until - monotonic_clock().now(), called);
  }
  nudged_ = false;
}

void QueueMailbox::nudge() {
  {
    const std::lock_guard lock(mutex_);
    nudged_ = true;
  }
  arrived_.notify_one();
}

}  // namespace tenuto
