// Runs a program in list order without a clock.
#pragma once

#include "sim/clockwork.h"

namespace tenuto {

// True when the order in which links serve messages is known beforehand: listed dispatch, no
// staggered update, no Validate, no link whose rate two lanes would share, and every receive buffer
// returned by a compute op.
bool can_run_listed(const Program& program, const Plan& plan, const Tariff& tariff,
                    const PriceOptions& options);

// Returns exactly what run_clockwork returns (except the starts of ops that never end), several
// times faster, also for several steps in turn. In list order every start is the maximum of times
// that are final, so ops need not be processed in time order: each worker runs as far as its inputs
// are known, which keeps its data in the cache.
//
// Requires: can_run_listed
// Cost:     linear in the number of ops; O(n log n) with options.bytes
Outcome run_listed(const Program& program, const Plan& plan, const Schedule& schedule,
                   const Tariff& tariff, const PriceOptions& options);

}  // namespace tenuto
