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
  // The holders of each stage that are given no micro-batch of the held-out pass either.
  std::vector<std::vector<WorkerId>> idle = {};
};

// A compute op and its place in the list that it comes from.
struct Placed {
  size_t index = 0;
  Op op;
};

// Merges ops of several lists into one, by their places. The ops of one kind and stage get
// ascending micro-batches; ready dispatch requires this of weight gradients.
std::vector<Op> merge(std::vector<Placed> placed);

// The plan with `work` in place of its lists and holders, under ready dispatch and the plan's
// limits. Messages, reductions, norm, clip decision, updates and the held-out pass are made anew;
// layers, shared weights and the kind of backward stay.
//
// The held-out micro-batches are dealt out evenly: at no stage does a worker run more of them than
// ceil(micro-batches / holders of the stage with the fewest holders). Within that limit each
// micro-batch stays in its pipeline, as in `plan`.
//
// Does not check the result; check() does.
//
// Requires: a list for each worker and holders for each stage of the plan; every stage has a
//           holder; lists hold each op once and nothing else; no worker holds two stages that share
//           a weight
Plan with_work(const Plan& plan, Work work);

// The plan with a held-out pass of `micros` micro-batches, dealt out evenly as with_work() does;
// unchanged if it has as many already.
Plan with_evaluation(Plan plan, int32_t micros);

// Which worker runs the forward of each micro-batch, by stage and micro-batch.
std::vector<std::vector<WorkerId>> runners_of(const Plan& plan);

// Deals out a stage's micro-batches that have no owner. owners[m] is the index of micro-batch m's
// holder, below `holders`, or -1. Each -1 in turn becomes the holder with the fewest micro-batches,
// on a tie the lower index. The other micro-batches keep their owners.
void share_out(std::vector<int32_t>& owners, int32_t holders);

// The plan with other holders of its stages. The micro-batches of workers that no longer hold a
// stage are dealt out evenly, one after the other, to the holder of the stage that has the fewest.
// A worker that still holds a stage keeps its micro-batches. In each list the kinds of ops keep
// their places, and each kind at a stage runs its micro-batches in ascending order. Only the memory
// limits stay: the other limits belonged to the old order.
//
// Requires: check(plan) is ok; holders for each stage, none twice
Plan with_holders(const Plan& plan, std::vector<std::vector<WorkerId>> holders);

// The plan with `joiners` of each stage as further holders. They run no micro-batch and only take
// part in the sums and the updates, so that they can receive the stage's state while steps go on.
// Groups with joiners sum by `direct` instead of the ring, in two rounds whatever their size,
// unless the plan's all_reduce is auto. With a split backward, joiners sum the gradients of their
// other stages first.
//
// Requires: check(plan) is ok; joiners for each stage, who hold nothing in the plan
Plan with_joiners(const Plan& plan, const std::vector<std::vector<WorkerId>>& joiners);

// The plan in which workers `a` and `b` have changed places: each holds the stages of the other one
// and runs its micro-batches. Ready dispatch; only the memory limits stay.
//
// Requires: check(plan) is ok
Plan with_swapped(const Plan& plan, WorkerId a, WorkerId b);

// with_holders() without the workers that are not `alive`. A worker with a copy of a stage
// (copies.h) keeps the copy. If no live worker runs that stage, the worker with the copy runs it
// from now on, and leaves its own stage to others if there are any.
//
// Requires: check(plan) is ok; a flag for each worker
// Errors:   Infeasible/Job  a stage has no live holder
Result<Plan> without_workers(const Plan& plan, const std::vector<bool>& alive);

}  // namespace tenuto
