// Is this plan right? Dependence, completeness, double work, leaks, memory and freedom from
// deadlock under the plan's own dispatch, all derived from effect_of.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "ir/stores.h"

namespace tenuto {

// Refuses a plan with the first fault found: a sentence that names worker and op, and the list with
// an arrow. Sizes may be empty (no byte figures).
//
// With `stores` the lists are what is left of a step, and these values are there before. An op runs
// once at most; each micro-batch's weight gradient comes into the sum of its stage once, from the
// lists or from a partial that is there, unless a total is: then no op adds to it, and it may be
// sent on. A holder without a Step has taken it already and keeps the total. An op that is run
// again for one of its results leaves the others behind: values may stay to the end.
//
// Requires: a store for each worker, or none
// Errors: Invalid/Job   the plan is malformed, loses or doubles work, leaks, or can deadlock
//         Exhausted/Worker   a worker would hold more micro-batches than its limit
// Cost:   linear in the number of ops
Status check(const Plan& plan, const Sizes& sizes = {}, const Stores& stores = {});

// What a right plan's user should know all the same, a sentence each: weight gradients that are not
// summed in micro-batch order.
//
// Requires: check(plan) is ok
std::vector<std::string> notices(const Plan& plan);

// Refuses a collective whose members do not all end with every contribution exactly once.
Status check(const Collective& collective);

}  // namespace tenuto
