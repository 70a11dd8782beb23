// Which values of a step a worker has, and with which of them the rest of the step begins.
#pragma once

#include <vector>

#include "ir/op.h"

namespace tenuto {

// What a live worker has of one step. With a whole backward (Plan::split_backward is false) a
// micro-batch is in the partial as soon as its BackwardInput has ended.
struct Inventory {
  std::vector<Value> values;     // in its store, and sent values of which it keeps a copy
  std::vector<StageId> stepped;  // stages whose Step it has taken: it keeps their totals
  auto operator<=>(const Inventory&) const = default;
};

// A worker's part of what is left of a step.
struct RestPart {
  std::vector<Value> stored;  // values that it keeps; its list begins with them
  std::vector<StageId> back;  // stages whose Step it undoes, to be taken again
  // Gradients whose BackwardInput runs again without a BackwardWeight, because the weight gradient
  // is in a sum already. The runtime fills this in from the list.
  std::vector<Value> unsummed = {};
  auto operator<=>(const RestPart&) const = default;
};

}  // namespace tenuto
