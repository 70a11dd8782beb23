// Runs a program in list order without a clock.
#pragma once

#include "sim/clockwork.h"

namespace tenuto {

// True when the order in which links serve messages is known beforehand: one step, listed dispatch,
// and no link whose rate two lanes would have to share.
bool can_run_listed(const Program& program, const Plan& plan, const Tariff& tariff,
                    const PriceOptions& options);

// What run_clockwork returns, to the last nanosecond, some times faster. In list order every start
// is the largest of times that are known for good, so nothing needs to happen in the order of time:
// each worker runs as far as what it has allows, which keeps its data in the cache.
//
// Requires: can_run_listed
// Cost:     linear in the number of ops; O(n log n) with options.bytes
Outcome run_listed(const Program& program, const Plan& plan, const Schedule& schedule,
                   const Tariff& tariff, const PriceOptions& options);

}  // namespace tenuto
