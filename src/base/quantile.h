// Quantiles of times: medians and what most of them stay below.
#pragma once

#include <span>

#include "base/unit.h"

namespace tenuto {

// The time below which `share` (0 to 1) of `times` lie, interpolated between neighbours and rounded
// down to a nanosecond; 0.5 = median, the mean of the middle two where they are two. Zero when
// there are none. Reorders `times`.
Duration quantile(std::span<Duration> times, double share);

}  // namespace tenuto
