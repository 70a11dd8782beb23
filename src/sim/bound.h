// What no schedule can beat.
#pragma once

#include <vector>

#include "base/unit.h"
#include "ir/plan.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A lower bound on the time from empty to the last weight gradient, for any order, dispatch and
// memory, given who runs which op. Each op has a head (the longest way to it from the start of its
// micro-batch) and a tail (the longest way from its end to the end); a worker that runs its ops one
// at a time needs at least what it would need if it could interrupt them (Jackson's rule: of the
// ops that are here, the one with the longest tail). The largest such time over the workers.
//
// Source: Carlier, "The one-machine sequencing problem", EJOR 1982 (the preemptive bound).
// Cost:   O(n log n) for n ops
Duration lower_bound(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster);

}  // namespace tenuto
