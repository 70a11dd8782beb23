// Small plans in which any pipeline may run any micro-batch of a stage, for searches over all their
// orders.
#pragma once

#include "base/random.h"
#include "ir/plan.h"

namespace tenuto {

// What small plans are like.
struct SmallKind {
  int32_t pipelines = 2;
  int32_t workers = 2;  // of a pipeline
  int32_t chunks = 1;   // stages of a worker
  int32_t micros = 3;   // over all pipelines
};

// In which sequence a worker's list has the micro-batches of one kind of op.
enum class MicroOrder : uint8_t {
  Global,     // ascending, everywhere the same
  OfAWorker,  // another permutation at each worker: breaks the rule of ready dispatch
};

// A plan for ready dispatch: each micro-batch's ops of a stage at a random holder, the stages of a
// worker mixed at random, limits on micro-batches of 1 to 2 for each stage, or rooms that keep
// weight gradients waiting, at times a warm-up. It may stand still.
Plan small_ready_plan(const SmallKind& kind, MicroOrder order, Random& random);

// A plan with random lists for listed dispatch; some stand still.
Plan small_listed_plan(const SmallKind& kind, Random& random);

}  // namespace tenuto
