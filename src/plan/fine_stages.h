// Plans with a stage for each layer, so that a worker holds several stages and a layer can move to
// another worker as a stage does.
#pragma once

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// The plan with each layer as a stage of its own, on the workers that hold the layer in `plan`. A
// forward of several layers becomes the forwards of these layers in turn, a backward becomes their
// backwards in reverse; held-out micro-batches are divided in the same way. So each worker computes
// the same in the same order. The new stages sum their gradients as the stage did that they come
// from, and the limits of the workers allow as many micro-batches as before.
//
// Unchanged if each stage has one layer already.
//
// Requires: check(plan) is ok
// Errors:   Infeasible/Job  the first and the last layer share a weight and are held by one worker
Result<Plan> with_fine_stages(const Plan& plan);

}  // namespace tenuto
