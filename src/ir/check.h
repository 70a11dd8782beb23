// Is this plan right? Dependence, completeness, double work, leaks, memory and freedom from
// deadlock under the plan's own dispatch, all derived from effect_of.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// Refuses a plan with the first fault found: a sentence that names worker and op, and the list with
// an arrow. Sizes may be empty (no byte figures).
//
// Errors: Invalid/Job   the plan is malformed, loses or doubles work, leaks, or can deadlock
//         Exhausted/Worker   a worker would hold more micro-batches than its limit
// Cost:   linear in the number of ops
Status check(const Plan& plan, const Sizes& sizes = {});

// What a right plan's user should know all the same, a sentence each: weight gradients that are not
// summed in micro-batch order.
//
// Requires: check(plan) is ok
std::vector<std::string> notices(const Plan& plan);

// Refuses a collective whose members do not all end with every contribution exactly once.
Status check(const Collective& collective);

}  // namespace tenuto
