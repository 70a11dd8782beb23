// Makes plans with one stage for each layer. A worker then holds several stages, and a layer can
// move to another worker as a stage of its own.
#pragma once

#include <optional>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// The plan with each layer as a stage of its own, on the workers that hold the layer in `plan`. The
// forward of a stage becomes the forwards of its layers in turn; a backward becomes their backwards
// in reverse. Evaluation micro-batches are divided in the same way. So each worker computes the
// same in the same order. A new stage sums gradients as the stage that it comes from did, and the
// workers' limits allow as many micro-batches as before.
//
// Unchanged if each stage has one layer already.
//
// Requires: check(plan) is ok
// Errors:   Infeasible/Job  the first and the last layer share a weight and are held by one worker
Result<Plan> with_fine_stages(const Plan& plan);

// The opposite: neighbouring stages become one stage where the same workers hold them and run the
// same micro-batches of them. The searches in adapt/ need plans whose workers hold one stage each.
// A worker computes the same in the same order, if its list runs the stages of a micro-batch one
// after the other, as with_fine_stages() makes them. Limits allow as many micro-batches as before.
//
// Returns: nothing when some worker would still hold several stages, or a stage has copies
//
// Requires: check(plan) is ok
std::optional<Plan> with_coarse_stages(const Plan& plan);

}  // namespace tenuto
