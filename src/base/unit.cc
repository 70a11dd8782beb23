#include "base/unit.h"

#include <cmath>

#include "base/longest_time.h"

namespace tenuto {

Duration from_nanoseconds(double nanoseconds) {
  constexpr auto kMost = static_cast<double>(kLongestTime.count());
  if (std::isnan(nanoseconds)) return {};
  return Duration(std::llround(std::clamp(nanoseconds, -kMost, kMost)));
}

Duration from_milliseconds(double milliseconds) { return from_nanoseconds(milliseconds * 1e6); }

double to_milliseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

Duration transfer_time(Bytes size, double bytes_per_second) {
  if (bytes_per_second <= 0) return Duration{0};
  return from_nanoseconds(std::ceil(static_cast<double>(size.count) / bytes_per_second * 1e9));
}

}  // namespace tenuto
