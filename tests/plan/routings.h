// Random routings for tests: any holder of a stage runs any of its micro-batches.
#pragma once

#include "base/random.h"
#include "plan/routed.h"

namespace tenuto {

// Draws which workers live: each with this chance, and at least one of each stage.
std::vector<bool> draw_alive(const Plan& plan, double chance, Random& random);

// Deals out the plan's work at random among the live workers: most micro-batches stay in their
// pipeline; sometimes a worker gets nothing at all.
//
// Requires: no worker of the plan has several stages
Work draw_work(const Plan& plan, const std::vector<bool>& alive, Random& random);

}  // namespace tenuto
