// Who runs which micro-batch: the search for the routing of a step on a cluster with any mixture of
// dead workers, slow workers and slow links.
#pragma once

#include <optional>
#include <string>

#include "adapt/flow.h"
#include "adapt/mesh_play.h"

namespace tenuto {

// A routing with an order for every holder.
struct Routed {
  Routing routing;
  Orders orders;
  Duration time{};   // of the step as played
  Duration bound{};  // no routing and no order is faster
  std::string how;   // a few words for people
};

// A dead worker is a holder that is not there, a slow one runs fewer micro-batches, a slow link
// costs: one network for all of them. How many micro-batches a holder can run within an allowed time
// the bound says (mesh_bound.h); the cheapest flow that keeps these numbers is dealt to the
// micro-batches and played. The allowed time goes up from the bound: the more is allowed, the more
// the flow can stay at home and off slow links, and the higher is the load. Beside these: holders of
// each stage loaded for themselves, whole pipelines by what they can carry, every micro-batch at
// home, and the dead's dealt evenly. Each is played in the global order and as it comes; the fastest
// is kept, and the first that reaches the bound ends the search. Deterministic.
//
// Source: Gandhi et al., "ReCycle", SOSP 2024 (peers of a dead worker run its micro-batches)
// Cost:   some 3 ms for 8 stages x 4 pipelines x 32 micro-batches
Routed search_route(const Mesh& mesh);

// Every micro-batch in its own pipeline; those of a missing holder go around its peers evenly.
Routing even_routing(const Mesh& mesh);

// How many micro-batches each pipeline runs when none leaves it, loaded by what the bound says that it
// can carry; 0 where a holder is missing. Empty when no pipeline is whole.
std::vector<int32_t> whole_counts(const Mesh& mesh);

// Every micro-batch in one pipeline from end to end, so many in each.
//
// Requires: the counts add up to the step's, and a pipeline that has any is whole
Routing whole_routing(const Mesh& mesh, const std::vector<int32_t>& counts);

// The plan with its work as a routing gives it to the workers: each list as it was played, under
// ready dispatch, within the plan's rooms.
//
// Requires: the mesh is the plan's, and the routing the mesh's
Plan with_routing(const Plan& plan, const Mesh& mesh, const Routed& routed);

}  // namespace tenuto
