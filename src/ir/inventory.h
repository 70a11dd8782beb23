// Which values of a step a worker has.
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

}  // namespace tenuto
