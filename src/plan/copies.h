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

// The holders of each stage that run no micro-batch of it, but run another stage.
Copies copies_in(const Plan& plan);

// The plan in which these workers also hold these stages. The compute ops of every list stay.
//
// Requires: an entry for each stage; its workers hold another stage, but neither this stage nor one
//           that shares a weight with it
Plan with_copies(Plan plan, const Copies& copies);

// The plan without its copies.
Plan without_copies(Plan plan);

// Chooses a worker for one copy of each stage. It prefers, in this order: a worker that keeps the
// fewest copies; one whose place (Cluster::place; a host, a rack) has no holder of the stage; one
// whose own stage follows soonest after this stage; one whose pipeline number equals the stage
// number modulo the pipelines.
//
// `places`: of each worker; empty = all are at the same place
// Requires: no worker holds two stages
// Errors:   Infeasible/Job  the plan has only one stage, or the only other workers hold the stage
//                           that shares a weight with it
Result<Copies> choose_copies(const Plan& plan, const std::vector<int32_t>& places);

}  // namespace tenuto
