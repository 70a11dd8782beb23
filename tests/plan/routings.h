// Routings at random, for tests: any holder of a stage runs any of its micro-batches.
#pragma once

#include "base/random.h"
#include "plan/routed.h"

namespace tenuto {

// Which workers live: each with this chance, and of each stage at least one.
std::vector<bool> draw_alive(const Plan& plan, double chance, Random& random);

// The plan's work dealt out at random among those that live: for the most part a micro-batch stays
// where it was, at times a worker gets nothing at all.
//
// Requires: no worker of the plan has several stages
Work draw_work(const Plan& plan, const std::vector<bool>& alive, Random& random);

}  // namespace tenuto
