// A plan in which any holder of a stage may run any of its micro-batches, and workers may be
// absent.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// A step's work, given to workers. A worker that lists nothing and holds nothing is absent.
struct Work {
  std::vector<std::vector<Op>> lists;          // of each worker: Forward, BackwardInput and
                                               // BackwardWeight
  std::vector<std::vector<WorkerId>> holders;  // of each stage: who keeps its weights, with or
                                               // without a micro-batch of it
  // Of the holders of each stage: they are given no micro-batch of the held-out pass either.
  std::vector<std::vector<WorkerId>> idle = {};
};

// A compute op and its place in the list that it comes from.
struct Placed {
  size_t index = 0;
  Op op;
};

// Brings ops that come from several lists into one: by their places, and of one kind and stage in
// ascending order of micro-batches, as ready dispatch asks.
std::vector<Op> merge(std::vector<Placed> placed);

// The plan with its work given to the workers that list it, under ready dispatch and the plan's
// limits. Messages, reductions, norm, verdict, updates and the held-out pass are made anew; layers,
// weights that stages share and what an op is stay.
//
// The held-out micro-batches are dealt out evenly enough that no worker has more than the stage
// with the fewest holders makes unavoidable; below that each stays in its pipeline, as `plan` has
// them.
//
// Whether the result is right is check()'s to say.
//
// Requires: a list for each worker and holders for each stage of the plan; every stage has a
//           holder; lists hold each op once and nothing else; no worker holds two stages that share
//           a weight
Plan with_work(const Plan& plan, Work work);

// Gives micro-batches that nobody runs (-1), one after the other, to the one of `holders` holders
// of a stage that has least, of equals to the lower number. What the others run stays with them.
void share_out(std::vector<int32_t>& owners, int32_t holders);

// The plan with other holders of its stages: what those had who no longer hold a stage is dealt out
// evenly, one micro-batch after the other to the holder of the stage that has least. Who holds a
// stage as before keeps what it has, and each kind of op its place in the list. Of the limits only
// the rooms stay: the others belong to the order as it was.
//
// Requires: check(plan) is ok; holders for each stage, none twice
Plan with_holders(const Plan& plan, std::vector<std::vector<WorkerId>> holders);

// The plan, and beside its holders `learners` of each stage, who run nothing: they take part in the
// sums and the updates alone, so that they can be given the state of the stage while steps go on.
//
// Requires: check(plan) is ok; learners for each stage, who hold nothing in the plan
Plan with_learners(const Plan& plan, const std::vector<std::vector<WorkerId>>& learners);

// with_holders() without the workers that are not `alive`. Who keeps a copy of a stage (copies.h)
// keeps it; where nobody lives who runs the stage it runs it from now on, and its own stage no more
// if others can.
//
// Requires: check(plan) is ok; a flag for each worker
// Errors:   Infeasible/Job  nobody who lives holds a stage
Result<Plan> without_workers(const Plan& plan, const std::vector<bool>& alive);

}  // namespace tenuto
