// Small plans in which any pipeline may run any micro-batch of a stage, for searches over all their
// orders.
#pragma once

#include "base/random.h"
#include "ir/plan.h"

namespace tenuto {

// The size of small plans.
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

// A plan for ready dispatch: a random holder of each stage runs each micro-batch, and the stages of
// a worker are mixed at random. A worker may hold 1 to 2 micro-batches for each stage, by a limit
// or a memory limit; some have a warm-up. The plan may deadlock.
Plan small_ready_plan(const SmallKind& kind, MicroOrder order, Random& random);

// A plan with random lists for listed dispatch. It may deadlock.
Plan small_listed_plan(const SmallKind& kind, Random& random);

}  // namespace tenuto
