// A second pricing of a plan, slow and plain, that shares no code with the first: its own rules of
// what waits for what, sets in place of arrays, and a look at everything at every moment.
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
