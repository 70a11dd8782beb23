// The schedule: one training step of the whole cluster as one op list per worker.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/collective.h"
#include "ir/op.h"

namespace tenuto {

// Who sums a weight gradient together, and by which collective. Stages: one, or two when they share
// a tied weight.
struct Group {
  std::vector<StageId> stages;
  std::vector<WorkerId> members;
  CollectiveId collective;
  auto operator<=>(const Group&) const = default;
};

// One step. Who lists an op runs it; a micro-batch keeps its name wherever it runs.
struct Schedule {
  int32_t stage_count = 0;
  int32_t micro_count = 0;             // over all pipelines
  std::vector<std::vector<Op>> lists;  // lists[w] = worker w's ops, in issue order
  std::vector<Group> groups;
  std::vector<Collective> collectives;
  auto operator<=>(const Schedule&) const = default;
};

}  // namespace tenuto
