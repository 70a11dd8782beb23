// Copies of a stage: workers that run another stage hold it too and run nothing of it, so that its
// state outlives those who do. They take part in its sums and its updates, and have what the others
// have at every version.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// Who keeps a copy of each stage.
using Copies = std::vector<std::vector<WorkerId>>;

// The holders of each stage that run nothing of it while they run another one.
Copies copies_in(const Plan& plan);

// The plan, in which these workers also hold these stages. Who runs what stays, in the same order.
//
// Requires: copies for each stage, of workers that hold another one and not this one, nor one that
//           shares a weight with it
Plan with_copies(Plan plan, const Copies& copies);

// The plan without its copies.
Plan without_copies(Plan plan);

// One copy of each stage, at a worker of the next stage where that is possible: the worker that
// keeps fewest, of equals one whose place (Cluster::place; a host, a rack) has no holder of the
// stage, then the one whose pipeline's number is that of the stage.
//
// `places`: of each worker; empty = all are at one
// Requires: no worker holds two stages
// Errors:   Infeasible/Job  one stage alone, or no worker may hold the two stages
Result<Copies> choose_copies(const Plan& plan, const std::vector<int32_t>& places);

}  // namespace tenuto
