// The schedule: one training step of the whole cluster as one op list per worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/collective.h"
#include "ir/op.h"

namespace tenuto {

// How a group's collective was made (collective/algorithm.h), so that it can be made again for
// other members.
struct Summing {
  std::string algorithm = "ring";
  WorkerId late;       // the member that is expected late; none = nobody
  int32_t chunks = 0;  // 0 = as many as the algorithm likes
  auto operator<=>(const Summing&) const = default;
};

// Who sums a weight gradient together, and by which collective. Stages: one, or two when they share
// a tied weight.
struct Group {
  std::vector<StageId> stages;
  std::vector<WorkerId> members;
  CollectiveId collective;
  Summing summing = {};
  auto operator<=>(const Group&) const = default;
};

// One step. The worker that lists an op runs it; a micro-batch keeps its name wherever it runs.
struct Schedule {
  int32_t stage_count = 0;
  int32_t micro_count = 0;             // over all pipelines
  std::vector<std::vector<Op>> lists;  // lists[w] = worker w's ops, in issue order
  std::vector<Group> groups;
  std::vector<Collective> collectives;
  // The algorithm by which groups sum; auto: each group has its own, chosen for the cluster.
  std::string all_reduce = "ring";
  auto operator<=>(const Schedule&) const = default;
};

}  // namespace tenuto
