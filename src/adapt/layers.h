// Decides which layers move to other workers when a worker stays slow, is lost or is fast again.
// The plan has one stage for each layer (plan/fine_stages.h).
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

// The conditions under which moves pay.
struct MoveTerms {
  // The number of steps for which the state of the cluster has not changed. The search expects it
  // to last for as many steps again, but not beyond the end of the run.
  int64_t lasted = 0;
  int64_t left = 0;          // steps until the end of the run
  double least_gain = 0.02;  // a step must become shorter by this share
};

// Moves of layers, with their cost and the time that they save.
struct LayerMoves {
  std::vector<LayerMove> moves;  // by stage; empty if no moves pay now
  Plan plan;                     // after the moves
  Duration before{}, after{};    // a whole step, without and with the moves
  Duration cost{};               // of the moves, once: the longest time that one donor sends
  // If no moves pay now: the moves would pay after this many steps in the same state of the
  // cluster. -1 = some moves pay now, or no moves make a step enough shorter.
  int64_t pays_after = -1;
  std::string reason;
};

// Finds the moves that pay most: the time that they are expected to save, less their cost. In one
// step of the search, a worker gives the first or last layer of a row of layers that it holds to a
// worker of the neighbouring layer that runs some of the same micro-batches. That worker may give a
// layer to the next one, and so on. The search takes the step that lowers the load of the busiest
// workers most, prices the plan (sim/price.h), and goes on until no step is better. Each worker
// keeps at least one layer. Deterministic.
//
// Requires: check(plan) is ok; the model has the plan's layers
// Errors:   as price() for the given plan
Result<LayerMoves> find_layer_moves(const Plan& plan, const Model& model, const Cluster& now,
                                    const MoveTerms& terms);

}  // namespace tenuto
