// Divides the micro-batches of a step among the holders of every stage by the cheapest flow within
// each holder's limit, and then gives each holder its micro-batches.
#pragma once

#include <optional>
#include <vector>

#include "adapt/mesh.h"

namespace tenuto {

// How many micro-batches each holder may run: counts[stage][holder].
using Counts = std::vector<std::vector<int32_t>>;

// How many micro-batches go from each holder to each holder of the next stage.
struct Flow {
  std::vector<int32_t> starts;             // at the holders of the first stage
  std::vector<std::vector<int32_t>> over;  // over[s], as Mesh::ways
};

// The cost in the flow of sending a micro-batch over a way: the square of its delay there and back,
// since the worst route makes the step long, not the sum of all; plus a little for leaving the
// pipeline.
class WayCosts {
 public:
  explicit WayCosts(const Mesh& mesh);
  // From holder `from` of a stage to holder `to` of the next.
  int64_t of(int32_t stage, int32_t from, int32_t to) const;

 private:
  const Mesh& mesh_;
  double forward_ = 1;  // median time of a forward, in nanoseconds
};

// The cheapest way for all micro-batches through the stages. Beginning in another pipeline than the
// home pipeline costs less than crossing to another one later.
//
// Returns: nothing when a stage's counts add up to fewer micro-batches than the step has
// Source:  successive shortest paths (Ahuja, Magnanti, Orlin, "Network Flows", 9.7)
// Cost:    O(paths x stages x holders^2)
std::optional<Flow> cheapest_flow(const Mesh& mesh, const WayCosts& costs, const Counts& counts);

// Gives each micro-batch, in the order of their numbers, to the holder that is furthest behind its
// share; on a tie to one that keeps it in its pipeline. So guests are spread over the step.
Routing assign_micros(const Mesh& mesh, const Flow& flow);

}  // namespace tenuto
