#include "remedy/expected_duration.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tenuto {

double expected_rest(const SeenDurations& seen, int64_t lasted) {
  int64_t rests = std::max(lasted, kUsualSteps - lasted), count = 1;
  for (const int64_t duration : seen) {
    if (duration <= lasted) continue;
    rests += duration - lasted;
    ++count;
  }
  return static_cast<double>(rests) / static_cast<double>(count);
}

int64_t lasted_for_rest(const SeenDurations& seen, int64_t lasted, double rest) {
  // Between the durations that were seen, the expected rest falls or stays; it rises only beyond
  // the longest one.
  std::set<int64_t> moments = {lasted};
  for (const int64_t duration : seen) {
    if (duration > lasted) moments.insert(duration);
  }
  for (const int64_t moment : moments) {
    if (expected_rest(seen, moment) >= rest) return moment;
  }
  constexpr double kNever = 1e15;  // steps: more than any run has
  return std::max(*moments.rbegin(), static_cast<int64_t>(std::ceil(std::min(kNever, rest))));
}

}  // namespace tenuto
