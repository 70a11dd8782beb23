// What would make a model fit into the memory of the devices, for the sentence that says that it
// does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// A model that does not fit.
struct UnfitModel {
  const LayoutProblem& problem;
  const std::vector<std::string>& names;  // of the layers
  int32_t rows = 0;                       // of a micro-batch; 0 = not known
  bool whole = false;  // each replica takes whole micro-batches in turn; else rows are split
};

// One or two clauses to add to the sentence, beginning with "; ". They name a layer that is too
// large for every device, and the changes that each make the model fit: more memory, smaller
// micro-batches, more devices, an optimizer with less state. A change that is named was checked: a
// layout fits after it. If stages may recompute, they do so in these checks.
//
// Cost: some hundred layouts for each change
std::string fit_advice(const UnfitModel& model);

}  // namespace tenuto
