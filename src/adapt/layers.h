// Looks for other places of the layers. The plan has one stage for each layer
// (plan/fine_stages.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/layer_move.h"
#include "ir/plan.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// Other places of the layers, and what it costs to move them there.
struct LayerLayout {
  std::vector<LayerMove> moves;  // that lead there, by stage
  Plan plan;                     // after the moves
  Duration step{};               // time of a whole step of that plan
  Duration cost{};               // of the moves, once: the longest time that one donor sends
};

// The layouts through which a search for the shortest step goes. In one step of the search, a
// worker gives the first or last layer of a row of layers that it holds to a worker of the
// neighbouring layer that runs some of the same micro-batches. That worker may give a layer to the
// next one, and so on. The search takes the step that lowers the load of the busiest workers most,
// and goes on until no step is better. Each worker keeps at least one layer. Deterministic.
//
// Requires: check(plan) is ok; the model has the plan's layers
// Returns:  those with a step shorter than that of the plan
// Errors:   as price() for the given plan
Result<std::vector<LayerLayout>> find_layer_layouts(const Plan& plan, const Model& model,
                                                    const Cluster& now);

// The layouts in which two workers have changed places. One of the two is slow, and may get a stage
// with fewer layers; or it is at the end of a slow link, which neighbouring stages may then not use
// any more. At most `most` of them are priced. Deterministic.
//
// Requires, returns, errors: as find_layer_layouts()
Result<std::vector<LayerLayout>> find_swaps(const Plan& plan, const Model& model,
                                            const Cluster& now, int32_t most);

// What it costs to move layers of a plan, once: the longest time for which one donor sends their
// parameters and optimizer state.
Duration cost_of_moves(const std::vector<LayerMove>& moves, const Plan& plan, const Model& model,
                       const Cluster& now);

}  // namespace tenuto
