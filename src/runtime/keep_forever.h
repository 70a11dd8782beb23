// Keeps memory that is never freed, because a transport may still write to it after all waits for
// that have been given up.
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
