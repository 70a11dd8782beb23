// Which input figure makes a step longer than the clock can count.
#pragma once

#include "base/result.h"
#include "sim/price.h"

namespace tenuto {

// The refusal of a step that lasts longer than kLongestTime. It names the input figure with the
// largest share in the sum of all the step's times, and a value of it with which the sum fits; or,
// if the other times alone are too long, by which factor all times must become shorter.
Error too_long(const Plan& plan, const Schedule& schedule, const Model& model,
               const Cluster& cluster, const PriceOptions& options);

// Checks that the plan's ops fit into kLongestTime even if every op runs at the slowest live worker
// and every message goes over the slowest link, because a search may try any routing and any order.
//
// Errors: Invalid/Call  too_long's
Status check_longest(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster, const PriceOptions& options);

}  // namespace tenuto
