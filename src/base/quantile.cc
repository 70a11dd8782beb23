#include "base/quantile.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tenuto {

Duration quantile(std::span<Duration> times, double share) {
  CHECK(share >= 0 && share <= 1, "the share of a quantile lies between 0 and 1");
  if (times.empty()) return {};
  const double place = share * static_cast<double>(times.size() - 1);
  const auto low = static_cast<std::ptrdiff_t>(std::floor(place));
  const auto at = times.begin() + low;
  std::nth_element(times.begin(), at, times.end());
  const double part = place - std::floor(place);
  if (part == 0 || at + 1 == times.end()) return *at;
  // Interpolate with the difference: the sum of two times could overflow, because a delay between
  // two clocks may be very large.
  const Duration gap = *std::min_element(at + 1, times.end()) - *at;
  return *at + Duration(static_cast<int64_t>(static_cast<double>(gap.count()) * part));
}

}  // namespace tenuto
