// The price of many steps under injected faults: one price for each stretch of steps in which links
// and workers stay the same.
#pragma once

#include <string>
#include <vector>

#include "sim/price.h"
#include "world/fault.h"

namespace tenuto {

// Steps [first, end), each of which takes `time`.
struct Stretch {
  int64_t first = 0, end = 0;
  Duration time{};
  std::vector<std::string> faults;  // what is in force, in words
};

// The first steps of a run whose links change as `faults` say.
struct FaultySteps {
  const std::vector<Fault>& faults;
  Seats seats;
  int64_t iterations = 0;  // how many steps
};

// Prices steps [0, iterations) of such a run. The faults of each step change the cluster `base`. If
// steps follow each other in turn, those of a stretch do so among themselves: the first one after
// a change is priced as the others.
//
// Shapes: as links_at
// Errors: those of price; Invalid/Call  the update is staggered, and links change between steps
Result<std::vector<Stretch>> price_steps(const Plan& plan, const Model& model, const Cluster& base,
                                         const FaultySteps& steps, const PriceOptions& options);

}  // namespace tenuto
