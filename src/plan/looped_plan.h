// Makes a plan of pipelines whose workers hold several stages each.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "plan/stage_plan.h"

namespace tenuto {

// A plan that passes check(). Worker i of a pipeline of S workers holds the stages i, S + i,
// 2 S + i and so on (its chunks). Each holder runs the micro-batches of its own pipeline in the
// order `interleaved`, or `1f1b` if there is one chunk. With ready dispatch, a worker begins as
// many micro-batches ahead as that order does. `in_flight` and `speed` of the shape are
// ignored.
//
// Requires: stages that cover the layers, a multiple of `chunks` of them; each with the same number
//           of holders; the chunks of a worker have the same holders in the same sequence
// Errors:   Invalid/Call    the holders do not divide the micro-batches; make_plan()'s
//           Infeasible/Job  the plan fails check()
Result<Plan> make_looped_plan(const std::vector<Stage>& stages, int32_t chunks, Dispatch dispatch,
                              const StageShape& shape);

}  // namespace tenuto
