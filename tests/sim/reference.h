// A second, slow and plain simulator of a plan. It shares no code with sim/price.h: it has its own
// rules of what waits for what, uses sets instead of arrays, and looks at everything at every
// event.
#pragma once

#include <vector>

#include "sim/price.h"

namespace tenuto {

// Ends of all ops, [worker][place in the list], up to the last weight gradient; -1 for ops of the
// update and for ops that never run.
std::vector<std::vector<Duration>> reference_ends(const Plan& plan, const Model& model,
                                                  const Cluster& cluster,
                                                  const PriceOptions& options);

}  // namespace tenuto
