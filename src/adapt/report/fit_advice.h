// Changes that would make a model fit into the memory of the devices, for the error message that
// says that it does not fit.
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

// Up to two clauses for the end of the error message, each with "; " before it. The first one names
// a layer that is too large for every device, if there is one. The second one lists changes, each
// of which makes the model fit: more memory, smaller micro-batches, more devices, an optimizer with
// less state. A change is listed only if a layout fits after it; in this layout, stages that do not
// fit otherwise recompute.
//
// Cost: some hundred layouts for each change
std::string fit_advice(const UnfitModel& model);

}  // namespace tenuto
