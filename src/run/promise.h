// What the simulator promises for a step of a run, to be shown beside what was measured.
#pragma once

#include <vector>

#include "control/decision_part.h"
#include "sim/price.h"

namespace tenuto {

// Every op of one step under the request's plan, with its model and cluster, as price() has them;
// of steps that overlap, those of one step that begins with nothing under way. Empty if the step
// cannot be priced, for example because a worker that is dead now had a part in it, or if it has so
// many ops that a price would hold up the coordinator.
std::vector<Span> promised_spans(const PlanRequest& request);

}  // namespace tenuto
