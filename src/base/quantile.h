// The median and other quantiles of a set of times.
#pragma once

#include <span>

#include "base/unit.h"

namespace tenuto {

// The time below which `share` (0 to 1) of `times` lie, interpolated between neighbours and rounded
// down to a nanosecond; 0.5 = median (for an even count, the mean of the middle two). Zero when
// there are no times. Reorders `times`.
Duration quantile(std::span<Duration> times, double share);

}  // namespace tenuto
