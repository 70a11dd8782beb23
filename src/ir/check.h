// Checks a plan: dependences, completeness, double work, leaks, memory limits, and freedom from
// deadlock under the plan's own dispatch. All of it is derived from effect_of.
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
// With `stores` the lists are the rest of an interrupted step, and each worker begins with these
// values. No op is listed twice. Each micro-batch's weight gradient enters the sum of its stage
// exactly once, from the lists or as a stored partial. If a total of the stage is stored, no op
// adds to it, and it may be sent to other holders. A holder that lists no Step of a stage has taken
// that Step already and keeps the total. An op may run again although only one of its results is
// needed, so values may remain at the end.
//
// Requires: a store for each worker, or none
// Errors: Invalid/Job   the plan is malformed, loses or doubles work, leaks, or can deadlock
//         Exhausted/Worker   a worker would hold more micro-batches than its limit
// Cost:   linear in the number of ops
Status check(const Plan& plan, const Sizes& sizes = {}, const Stores& stores = {});

// Warnings about a correct plan, one sentence each: weight gradients that are not summed in
// micro-batch order.
//
// Requires: check(plan) is ok
std::vector<std::string> notices(const Plan& plan);

// Refuses a collective whose members do not all end with every contribution exactly once.
Status check(const Collective& collective);

}  // namespace tenuto
