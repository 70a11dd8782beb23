// Runs a program where messages leave through the device's queue.
#pragma once

#include "sim/clockwork.h"

namespace tenuto {

// As run_clockwork, for one step in list order (whatever the plan's dispatch), with
// Sending::Blocking. A message is there a latency and its bytes / rate after its send starts, but
// not before its receive does.
//
// With a whole backward, the messages that stand between two compute ops of a list start together
// and are waited for: a send until its receive has started, a receive until its message is there.
// With a split backward every op is an item of the worker's launch queue, in the order in which an
// undisturbed run with equal op times would do it, a message before a compute op, gradients before
// activations. An item starts when those before it have started; a send also waits for its value,
// and the messages between two workers, either way, go one after the other.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026, section 3 (head-of-line blocking)
Outcome run_blocking(const Program& program, const Plan& plan, const Schedule& schedule,
                     const Tariff& tariff, const PriceOptions& options);

}  // namespace tenuto
