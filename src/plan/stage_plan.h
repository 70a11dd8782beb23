// Makes a plan from stages that are given with their layers and their holders, of which stages may
// have different numbers.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// What a plan of given stages does with them.
struct StageShape {
  int32_t workers = 1;  // of the cluster; those that hold nothing are idle
  int32_t micros = 1;   // micro-batches of a step, over all holders
  bool split_backward = false;
  bool tied = false;                // first and last stage share a weight (bucket 1)
  bool staggered = false;           // each stage steps when its own gradients are complete
  std::string all_reduce = "ring";  // by which algorithm groups sum, see plan/lower.h
  int32_t evaluation_micros = 0;    // micro-batches of the held-out pass
  // Of each stage: micro-batches that all its holders together have begun and not ended, at most;
  // empty = one for each holder of this stage and of all later ones, as 1F1B has.
  std::vector<int32_t> in_flight;
  // Of each worker: how many micro-batches fit into its memory, at least 1. It never has more begun
  // and not ended; empty = no such limit.
  std::vector<int32_t> fitting;
  // Of each worker: its relative speed, by which a stage's micro-batches are dealt to its holders;
  // empty = all alike.
  std::vector<double> speed;
};

// A plan that passes check(). Every micro-batch is run as a whole by one holder of each stage; the
// holders of a stage take micro-batches in turn, faster ones more often. A holder runs backwards
// before forwards (ready dispatch). It has at most its share of the stage's `in_flight`, rounded
// up, and at most `fitting`, but it may always have one.
//
// Errors: Invalid/Call    stages that leave out a layer, share a worker, have no holder, or have a
//                         holder beyond `workers`; more holders of a stage than micro-batches; a
//                         number out of range
//         Infeasible/Job  the plan fails check()
Result<Plan> make_stage_plan(const std::vector<Stage>& stages, const StageShape& shape);

// A plan for measuring stages: one worker holds all stages, of `layers` layers each, and runs one
// micro-batch after the other with a split backward. Errors as make_stage_plan's.
Result<Plan> make_lone_plan(int32_t stages, int32_t layers, int32_t micros);

}  // namespace tenuto
