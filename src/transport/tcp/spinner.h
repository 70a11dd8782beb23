// How long a waiting worker looks at the network again and again before it sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/unit.h"
#include "transport/tcp/tcp.h"

namespace tenuto::tcp {

// What waking a sleeping worker costs, about. A wait that spins for as long and then sleeps takes
// at most twice as long as the better of the two would have. The cost is not measured, because it
// hardly differs between machines, and a measurement on a busy one would be wrong.
inline constexpr Duration kSpin = std::chrono::microseconds(50);
// How long WireProgress::Auto does not spin after the worker's thread had to leave its core to
// another.
inline constexpr Duration kCalm = std::chrono::milliseconds(10);

// Decides for one thread, the worker's.
class Spinner {
 public:
  // `workers` of the job run on this host; null = one.
  Spinner(WireProgress progress, std::shared_ptr<const std::atomic<int32_t>> workers);
  // Until when a wait that begins now spins; zero = not at all, max() = until it ends.
  Duration until();
  // Lets other threads of this core run, between two looks.
  static void pause();

 private:
  const WireProgress progress_;
  const std::shared_ptr<const std::atomic<int32_t>> workers_;
  const int32_t cores_;
  int64_t displaced_ = 0;  // how often this thread has had to leave its core so far
  Duration calm_until_{};
};

}  // namespace tenuto::tcp
