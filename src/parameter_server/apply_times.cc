#include "parameter_server/apply_times.h"

#include <iterator>

namespace tenuto::servers {

void ApplyTimes::add(Version version, Duration took) {
  updates_[version] += took;
  if (updates_.size() > kRecent + 1) updates_.erase(updates_.begin());
}

std::optional<Duration> ApplyTimes::mean() const {
  if (updates_.size() < 2) return std::nullopt;
  Duration sum{};
  for (auto update = updates_.begin(); update != std::prev(updates_.end()); ++update) {
    sum += update->second;
  }
  return sum / static_cast<int64_t>(updates_.size() - 1);
}

}  // namespace tenuto::servers
