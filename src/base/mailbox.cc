#include "base/mailbox.h"

#include <utility>

namespace tenuto {

void QueueMailbox::post(Done done) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(done));
  }
  arrived_.notify_one();
}

Result<Done> QueueMailbox::wait(Duration limit) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, limit, [this] { return !queue_.empty(); })) {
    return Error{Code::Timeout, Reach::Call, "no call completed within the time limit"};
  }
  Done done = std::move(queue_.front());
  queue_.pop_front();
  return done;
}

}  // namespace tenuto
