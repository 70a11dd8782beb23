// Which layers should move to other workers, in a plan with a stage for each layer
// (plan/fine_stages.h), because a worker stays slow or is lost, or is well again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/layer_move.h"
#include "ir/plan.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// What moves must gain.
struct MoveTerms {
  // For how many steps the cluster has been as it is. It is expected to stay so for as many more,
  // but not longer than the run.
  int64_t lasted = 0;
  int64_t left = 0;          // steps that are left of the run
  double least_gain = 0.02;  // share by which a step must be shorter
};

// Moves of layers, and what they are worth.
struct LayerMoves {
  std::vector<LayerMove> moves;  // by stage; empty: none pay now
  Plan plan;                     // after the moves
  Duration before{}, after{};    // a whole step, without and with the moves
  Duration cost{};               // of the moves, once: the time that the state occupies its links
  // The moves would pay if the cluster had been as it is for so many steps; -1 = there are none
  // that make a step shorter by enough.
  int64_t pays_after = -1;
  std::string reason;
};

// Finds the moves that pay most: the time that they are expected to save, less what they cost. A
// worker gives the first or the last of the layers that it holds in a row to a worker of the
// neighbouring layer that runs some of the same micro-batches; a chain of workers may each give a
// layer to the next one. Among all such steps the search takes, as long as there is one, the one
// after which the most loaded workers have least to do, and prices what results (sim/price.h).
// Each worker keeps a layer. Deterministic.
//
// Requires: check(plan) is ok; the model has the plan's layers
// Errors:   as price() for the given plan
Result<LayerMoves> find_layer_moves(const Plan& plan, const Model& model, const Cluster& now,
                                    const MoveTerms& terms);

}  // namespace tenuto
