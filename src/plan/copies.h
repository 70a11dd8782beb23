// A copy of a stage is a holder that runs another stage and nothing of this one, so that the
// stage's state outlives the workers that run it. It takes part in the stage's sums and updates, so
// at every version it has the same state as the other holders.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// The workers that keep a copy of each stage.
using Copies = std::vector<std::vector<WorkerId>>;

// The holders of each stage that run nothing of it while they run another one.
Copies copies_in(const Plan& plan);

// The plan in which these workers also hold these stages. The compute ops of every list stay.
//
// Requires: copies for each stage, of workers that hold another one and not this one, nor one that
//           shares a weight with it
Plan with_copies(Plan plan, const Copies& copies);

// The plan without its copies.
Plan without_copies(Plan plan);

// One copy of each stage: at the worker that keeps the fewest copies; on a tie at one whose place
// (Cluster::place; a host, a rack) has no holder of the stage, then at one whose own stage follows
// soonest, then in the pipeline whose number is the stage's.
//
// `places`: of each worker; empty = all are at the same place
// Requires: no worker holds two stages
// Errors:   Infeasible/Job  one stage alone, or no worker may hold the two stages
Result<Copies> choose_copies(const Plan& plan, const std::vector<int32_t>& places);

}  // namespace tenuto
