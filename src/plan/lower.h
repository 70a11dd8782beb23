// The passes that turn compute lists into a whole schedule. An order writes which ops a worker runs
// and in which sequence; whoever moves an op to another worker runs the same passes again.
#pragma once

#include <vector>

#include "ir/plan.h"

namespace tenuto {

// Puts a Send right after each op whose value another worker needs, and a Recv right before the op
// that needs it. Only activations and gradients: values of a micro-batch.
//
// Requires: lists hold compute ops only, and each op at most once over all lists
void insert_messages(Schedule& schedule);

// Puts at the end of each holder's list what makes the step: Reduce with the stage's group (a ring
// over the holders), Measure with the norm passed down the pipeline, the verdict passed back up,
// Step. With `tied`, and at least two stages, the first and the last stage reduce in two buckets:
// 0 = what is theirs alone, 1 = the shared weight, over the holders of both.
void append_update(Schedule& schedule, const std::vector<Stage>& stages, bool tied);

}  // namespace tenuto
