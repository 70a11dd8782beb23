// Which live workers change their stage, so that the dead are not all missed at one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// costs[stage][missing] = time of a step when so many holders of the stage are missing.
using MissingCosts = std::vector<std::vector<Duration>>;

// How many holders each stage is to miss.
struct Spread {
  std::vector<int32_t> missing;  // by stage
  int32_t moves = 0;             // workers that come to a stage from another one
  Duration time{};               // the largest cost
};

// The division of what is missing whose largest cost is least and, of those that are no more than
// the share `gain` above it, the one with the fewest moves, of equals the fastest. Exact.
//
// Returns: nothing when more are missing than the table has costs for
// Source:  Gandhi et al., "ReCycle", SOSP 2024 (failures spread over stages; the exact method is
//          ours)
// Cost:    O(stages x missing x holders x log (stages x holders))
std::optional<Spread> spread_missing(const MissingCosts& costs, const std::vector<int32_t>& missing,
                                     double gain);

// A live worker that is to hold another stage.
struct StageMove {
  WorkerId worker;
  StageId from, to;
  WorkerId source;   // a live holder of `to` to copy its state from, weights and what the optimizer
                     // keeps of them; none = nobody lives who has it: from a checkpoint
  Bytes parameters;  // of `to`
  auto operator<=>(const StageMove&) const = default;
};

// The moves that make a step of a plan that lacks workers faster by more than a share of its time,
// and those without which a stage would have no holder. A stage that loses somebody by them misses
// fewer than the worst did: a gap is not moved for its own sake. What a stage costs with some of
// its holders missing the bound says (mesh_bound.h), with the speeds, links and rooms of those that
// are left. Slow workers move last; of equals goes the one whose pipeline has the gap.
//
// Requires: no worker holds two stages
// Returns:  at most one move a worker, by stage; empty = nobody moves
// Errors:   Infeasible/Job    fewer workers live than there are stages
//           Exhausted/Worker  as mesh_of
// Cost:     O(workers x micro-batches x log holders)
Result<std::vector<StageMove>> find_moves(const Plan& plan, const Model& model, const Cluster& now,
                                          const PriceOptions& options, double least_gain);

// The plan after the moves: who lives and stays or comes holds, what the others ran is dealt out
// evenly. The state of those that move is not in it.
//
// Requires: the moves are of this plan and cluster
Plan with_moves(const Plan& plan, const Cluster& now, const std::vector<StageMove>& moves);

// The workers that hold another stage than their place says, as moves without sources.
//
// Requires: no worker holds two stages
std::vector<StageMove> moves_in(const Plan& plan);

// The moves for people: "worker 19 holds stage 2 instead of 3, ...".
std::string describe(const std::vector<StageMove>& moves);

}  // namespace tenuto
