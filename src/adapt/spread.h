// Which live workers change their stage, so that not all missing holders are of one stage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"
#include "world/seats.h"

namespace tenuto {

// costs[stage][missing] = time of a step when so many holders of the stage are missing.
using MissingCosts = std::vector<std::vector<Duration>>;

// How many holders each stage is to miss.
struct Spread {
  std::vector<int32_t> missing;  // by stage
  int32_t moves = 0;             // workers that come to a stage from another one
  Duration time{};               // the largest cost
};

// Divides the missing holders among the stages. A division's time is its largest cost. Of the
// divisions whose time is at most (1 + gain) x the least time, takes one with the fewest moves, and
// of these the fastest. Exact.
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
  WorkerId source;   // a live holder of `to` to copy its state from (weights and optimizer state);
                     // none = no live worker has it: take it from a checkpoint
  Bytes parameters;  // of `to`
  auto operator<=>(const StageMove&) const = default;
};

// The moves that make a step of a plan with missing workers faster by more than the share
// `least_gain`, and those without which a stage would have no holder. A stage that gives up a
// worker still misses fewer holders than the worst stage before the moves. The cost of a stage with
// missing holders is its bound (mesh_bound.h), with the speeds, links and memory limits of the
// remaining ones. Slow workers move last; on a tie the worker whose pipeline has the gap moves.
//
// Requires: no worker holds two stages
// Returns:  at most one move a worker, by stage; empty = nobody moves
// Errors:   Infeasible/Job    fewer workers live than there are stages
//           Exhausted/Worker  as mesh_of
// Cost:     O(workers x micro-batches x log holders)
Result<std::vector<StageMove>> find_moves(const Plan& plan, const Model& model, const Cluster& now,
                                          const PriceOptions& options, double least_gain);

// The plan after the moves: each stage is held by the live workers that stay or come; what the
// others ran is dealt out evenly. The plan does not transfer the state of workers that move.
//
// Requires: the moves are of this plan and cluster
Plan with_moves(const Plan& plan, const Cluster& now, const std::vector<StageMove>& moves);

// The workers that hold another stage than their place says, as moves without sources.
//
// Requires: no worker holds two stages; as many places as stages
std::vector<StageMove> moves_in(const Plan& plan, const Seats& seats);

// The moves for people: "worker 19 holds stage 2 instead of 3, ...".
std::string describe(const std::vector<StageMove>& moves);

}  // namespace tenuto
