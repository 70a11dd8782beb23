// The calls that the coordinator has refused and whose refusals have not left yet.
#pragma once

#include <cstddef>
#include <functional>
#include <list>

#include "base/unit.h"

namespace tenuto {

// Keeps few of them, and none for long. Not for several threads at once.
class RefusedCalls {
 public:
  // The most of them. One more takes the place of the oldest, which is cancelled.
  static constexpr size_t kMost = 256;
  // How long a refusal may take to leave; after that its call is cancelled.
  static constexpr Duration kLimit = std::chrono::seconds(1);

  // A call has been refused at `now`. `cancel` ends it at once; it is called at most once, and not
  // after remove().
  void add(const void* call, std::function<void()> cancel, Duration now);
  // The call is over. Does nothing if it is none of these.
  void remove(const void* call);
  // Cancels the calls whose limit has passed.
  void cancel_late(Duration now);
  // When the next limit passes; Duration::max() = there is none.
  Duration next() const { return calls_.empty() ? Duration::max() : calls_.front().limit; }
  // How many there are, without those that were cancelled.
  size_t size() const { return calls_.size(); }

 private:
  struct Call {
    const void* call = nullptr;
    std::function<void()> cancel;
    Duration limit{};
  };
  void cancel_oldest();

  std::list<Call> calls_;  // the oldest first; those that were cancelled are not in it
};

}  // namespace tenuto
