// The longest time that is counted, so that no sum of times overflows.
#pragma once

#include <algorithm>

#include "base/unit.h"

namespace tenuto {

// 73 years. Every Duration that is made from a number (from_milliseconds, transfer_time, at_speed)
// and every sum by plus() is capped here, so three such times can be added without an overflow.
// This value means that the true time is that long or longer.
inline constexpr Duration kLongestTime{int64_t{1} << 61};

// left + right, at most kLongestTime. Requires: both are at least 0 and below 2 * kLongestTime.
constexpr Duration plus(Duration left, Duration right) {
  return std::min(left + right, kLongestTime);
}

// Nanoseconds as a Duration, rounded to the nearest one and no longer than kLongestTime on either
// side of 0. NaN becomes 0.
Duration from_nanoseconds(double nanoseconds);

}  // namespace tenuto
