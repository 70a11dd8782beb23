// Makes a plan that can be checked, priced and trained from given op lists.
#pragma once

#include "base/result.h"
#include "ir/plan.h"
#include "plan/make_plan.h"

namespace tenuto {

// Lists of one pipeline: the compute ops of each worker, and its messages if the lists place them.
struct GivenLists {
  Schedule schedule;      // without Reduce, Measure, Step; micros numbered by position
  bool messages = false;  // no: make_given_plan adds them (plan/lower.h)
};

// Lays out `shape.pipelines` copies of the lists side by side and adds what makes the step: stages
// with their layers and holders (a worker that lists an op of a stage holds it), messages,
// reductions, norm, update and the held-out pass. Ignores the shape's stages, micros and chunks:
// the lists determine them. Under ready dispatch the limits are what the lists themselves need.
//
// Errors: Invalid/Call      fewer layers than stages, a tied weight within one worker, or a shape
//                           out of range
//         Infeasible/Job    the ops of a stage are listed by no worker, or by several; a worker
//                           lists no op
//         Exhausted/Worker  the lists hold more micro-batches than shape.memory
Result<Plan> make_given_plan(const GivenLists& lists, const Shape& shape);

}  // namespace tenuto
