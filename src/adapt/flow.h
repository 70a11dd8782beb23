// Divides the micro-batches of a step among the holders of every stage, by the cheapest flow that
// keeps what each may run, and deals the numbers out.
#pragma once

#include <optional>
#include <vector>

#include "adapt/mesh.h"

namespace tenuto {

// How many micro-batches each holder may run: counts[stage][holder].
using Counts = std::vector<std::vector<int32_t>>;

// How many go from each holder to each of the next stage.
struct Flow {
  std::vector<int32_t> starts;             // at the holders of the first stage
  std::vector<std::vector<int32_t>> over;  // over[s], as Mesh::ways
};

// What sending a micro-batch over a way costs the flow: its delay there and back, squared, since a
// step is as long as its worst route, not as the sum of all; and a little for leaving the pipeline.
class WayCosts {
 public:
  explicit WayCosts(const Mesh& mesh);
  // From holder `from` of a stage to holder `to` of the next.
  int64_t of(int32_t stage, int32_t from, int32_t to) const;

 private:
  const Mesh& mesh_;
  double forward_ = 1;  // the middle one of all holders, in nanoseconds
};

// The cheapest way for all micro-batches through the stages. Beginning in another pipeline than at
// home costs less than crossing to it later.
//
// Returns: nothing when a stage's counts add up to less than the step has
// Source:  successive shortest paths (Ahuja, Magnanti, Orlin, "Network Flows", 9.7)
// Cost:    O(paths x stages x holders^2)
std::optional<Flow> cheapest_flow(const Mesh& mesh, const WayCosts& costs, const Counts& counts);

// The micro-batches in the order of their numbers, each to the holder that is furthest behind its
// share: at home and straight on where there is no difference. Guests are so spread over the step.
Routing deal(const Mesh& mesh, const Flow& flow);

}  // namespace tenuto
