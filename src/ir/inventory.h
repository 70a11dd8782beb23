// What a worker has of a step, by name.
#pragma once

#include <vector>

#include "ir/op.h"

namespace tenuto {

// What a worker that lives has of one step. With a whole backward (Plan::split_backward is false)
// a micro-batch is in the partial as soon as its BackwardInput has ended.
struct Inventory {
  std::vector<Value> values;     // in its store, and what it made and sent and keeps
  std::vector<StageId> stepped;  // stages whose Step it has taken: it keeps their totals
  auto operator<=>(const Inventory&) const = default;
};

}  // namespace tenuto
