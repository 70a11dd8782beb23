// A cluster's troubles at one moment, in a form that is equal whenever steps take equally long.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "outlook/trouble.h"

namespace tenuto::outlook {

// A trouble at a place of a pipeline.
struct Mark {
  int32_t stage = 0;
  TroubleKind kind = TroubleKind::DeadWorker;
  double factor = 0;
  auto operator<=>(const Mark&) const = default;
};

// The troubles of one pipeline, ascending.
using Pattern = std::vector<Mark>;

// The patterns of the pipelines that have troubles, ascending. Which pipelines these are makes no
// difference to a step, so it is not said.
using Condition = std::vector<Pattern>;

// The condition of a cluster with these troubles. Of several troubles of one kind at one place the
// worst counts; a dead worker is not slow.
Condition condition_of(const std::vector<Trouble>& troubles);

}  // namespace tenuto::outlook
