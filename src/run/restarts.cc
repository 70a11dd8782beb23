#include "run/restarts.h"

#include <algorithm>

namespace tenuto {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr int32_t kMostDoublings = 6;  // a minute

}  // namespace

void Restarts::note_end(WorkerId worker, Duration now) {
  int32_t& count = count_[worker];
  if (count >= most_ || due_.contains(worker)) return;
  due_[worker] = now + kFirstPause * (int64_t{1} << std::min(count, kMostDoublings));
  ++count;
}

std::vector<WorkerId> Restarts::take(Duration now) {
  std::vector<WorkerId> ready;
  for (const auto& [worker, at] : due_) {
    if (at <= now) ready.push_back(worker);
  }
  for (const WorkerId worker : ready) due_.erase(worker);
  return ready;
}

}  // namespace tenuto
