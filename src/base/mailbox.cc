#include "base/mailbox.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace tenuto {

namespace {

// The moment at which a wait of this length, which begins now, ends.
Duration end_of(Duration limit, Duration now) {
  return limit < Duration::max() - now ? now + limit : Duration::max();
}

}  // namespace

void QueueMailbox::post(Done done) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(done));
    count_ = queue_.size();
    if (std::exchange(asleep_, false)) driver_->wake();
  }
  arrived_.notify_one();
}

void QueueMailbox::post_at(Duration moment, Duration awake, MakeReport make) {
  later_.emplace(moment, Later{awake, std::move(make)});
}

// Posts all reports whose moment has come.
void QueueMailbox::post_due(Duration now) {
  while (!later_.empty() && later_.begin()->first <= now) {
    const MakeReport make = std::move(later_.begin()->second.make);
    later_.erase(later_.begin());
    post(make(now));
  }
}

Result<Done> QueueMailbox::wait(Duration limit) {
  if (later_.empty()) return wait_for_post(limit);
  const Duration until = end_of(limit, monotonic_clock().now());
  while (true) {
    const Duration now = monotonic_clock().now();
    post_due(now);
    Duration next = until;
    if (!later_.empty()) {
      next = std::min(next, later_.begin()->first - later_.begin()->second.awake);
    }
    Result<Done> report = wait_for_post(std::max(next - now, Duration{}));
    if (report.ok() || now >= until) return report;
  }
}

// Waits for reports that are posted by others.
Result<Done> QueueMailbox::wait_for_post(Duration limit) {
  std::unique_lock lock(mutex_);
  if (queue_.empty() && driver_ != nullptr) {
    const Duration until = end_of(limit, monotonic_clock().now());
    do {
      MailboxDriver& driver = *driver_;
      lock.unlock();
      driver.drive(until);
      lock.lock();
    } while (queue_.empty() && monotonic_clock().now() < until);
    limit = Duration{};
  }
  const auto filled = [this] { return !queue_.empty(); };
  // A wait for no time would give the core away.
  if (limit.count() <= 0 ? !filled() : !arrived_.wait_for(lock, limit, filled)) {
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
  } else if (const Duration now = monotonic_clock().now(); now < until) {
    arrived_.wait_for(lock, until - now, called);
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
