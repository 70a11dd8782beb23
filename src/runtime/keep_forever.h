// Keeps memory that must never be freed: a transport whose calls did not end in time may still
// write to it.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace tenuto {

// Keeps `what` until the process ends. Workers may be threads of one process: any may call it at
// any time.
template <class What>
void keep_forever(What what) {
  static auto* const mutex = new std::mutex();
  static auto* const kept = new std::vector<What>();
  const std::lock_guard lock(*mutex);
  kept->push_back(std::move(what));
}

}  // namespace tenuto
