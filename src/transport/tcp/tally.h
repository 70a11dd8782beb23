// What a wire counts while it works, and its repaired connections; any thread may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/transport.h"

namespace tenuto::tcp {

// TcpCounters (tcp.h) that one thread counts and another may read.
struct Tally {
  std::atomic<int64_t> refused{0}, turned_away{0}, malformed{0}, wake_ups{0}, broken{0},
      sent_again{0}, kept{0};
  std::mutex mutex;  // guards repairs; nothing else is locked while it is held
  std::vector<Repair> repairs;
};

}  // namespace tenuto::tcp
