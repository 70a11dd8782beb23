// What a wire counts while it works, its repaired connections, and what the kernel has said of
// each; any thread may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "transport/transport.h"

namespace tenuto::tcp {

// TcpCounters (tcp.h) that one thread counts and another may read.
struct Tally {
  std::atomic<int64_t> refused{0}, turned_away{0}, malformed{0}, wake_ups{0}, broken{0},
      sent_again{0}, kept{0};
  std::mutex mutex;  // guards what follows; nothing else is locked while it is held
  std::vector<Repair> repairs;
  std::map<WorkerId, LinkFigures> figures;  // since they were last taken
};

}  // namespace tenuto::tcp
