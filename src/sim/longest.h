// Which figure makes a step too long to be counted.
#pragma once

#include "base/result.h"
#include "sim/price.h"

namespace tenuto {

// The refusal of a step that lasts longer than kLongestTime. It names the figure with the largest
// share of all the step's times one behind the other, and up to which value the step fits for
// certain.
Error too_long(const Plan& plan, const Schedule& schedule, const Model& model,
               const Cluster& cluster, const PriceOptions& options);

// Whether any routing and any order of the plan's ops fits into kLongestTime, with every op at the
// slowest worker that lives and every message over the slowest link: searches try such steps.
//
// Errors: Invalid/Call  too_long's
Status check_longest(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster, const PriceOptions& options);

}  // namespace tenuto
