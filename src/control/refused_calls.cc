#include "control/refused_calls.h"

#include <utility>

namespace tenuto {

void RefusedCalls::add(const void* call, std::function<void()> cancel, Duration now) {
  if (calls_.size() >= kMost) cancel_oldest();
  calls_.push_back({call, std::move(cancel), now + kLimit});
}

void RefusedCalls::remove(const void* call) {
  calls_.remove_if([call](const Call& of) { return of.call == call; });
}

void RefusedCalls::cancel_late(Duration now) {
  while (next() <= now) cancel_oldest();
}

void RefusedCalls::cancel_oldest() {
  const Call oldest = std::move(calls_.front());
  calls_.pop_front();
  oldest.cancel();
}

}  // namespace tenuto
