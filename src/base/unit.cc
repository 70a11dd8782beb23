#include "base/unit.h"

#include <cmath>

namespace tenuto {

Duration from_milliseconds(double milliseconds) {
  return Duration(std::llround(milliseconds * 1e6));
}

double to_milliseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

Duration transfer_time(Bytes size, double bytes_per_second) {
  if (bytes_per_second <= 0) return Duration{0};
  return Duration(
      static_cast<int64_t>(std::ceil(static_cast<double>(size.count) / bytes_per_second * 1e9)));
}

}  // namespace tenuto
