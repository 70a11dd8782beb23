// Runs a program where messages leave through the device's queue.
#pragma once

#include "sim/clockwork.h"

namespace tenuto {

// As run_clockwork, for one step with Sending::Blocking, by the rule of ir/device_queue.h. Compute
// ops run in list order, whatever the plan's dispatch. A message arrives a latency plus its bytes /
// rate after its send starts, but not before its receive starts.
Outcome run_blocking(const Program& program, const Plan& plan, const Schedule& schedule,
                     const Tariff& tariff, const PriceOptions& options);

}  // namespace tenuto
