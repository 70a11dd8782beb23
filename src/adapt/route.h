// Which holder runs which micro-batch: the search for the routing of a step on a cluster with any
// mixture of dead workers, slow workers and slow links.
#pragma once

#include <optional>
#include <string>

#include "adapt/flow.h"
#include "adapt/mesh_play.h"
#include "base/watch.h"

namespace tenuto {

// A routing with a list for every holder.
struct RoutedStep {
  Routing routing;
  TaskLists lists;
  Duration time{};            // of the step as played
  std::string how;            // a few words for people
  std::vector<int32_t> most;  // by stage: micro-batches that a holder holds; empty = as memory
                              // allows
};

// What the search found.
struct Routed {
  RoutedStep ready;   // the best that ready dispatch plays by itself, given the order of each kind
  RoutedStep listed;  // the best as fixed lists; with a barrier never slower than `ready`
  Duration bound{};   // no routing and no order is faster

  // The faster of both.
  const RoutedStep& best() const { return listed.time < ready.time ? listed : ready; }
};

// How much the search may try. Counted in ops, not in seconds, so that equal inputs give equal
// results on every machine.
struct RouteEffort {
  int32_t moves = 4000;         // of micro-batches to other holders
  int64_t played_ops = 60'000;  // that moves may play; some 20 ns each
  int64_t all_ops = 240'000;    // for all plays; moves may also use what the others leave of it
  int32_t routings = 64;        // the most candidates that are played; there are some 20
  bool manners = true;          // no: only plays of ready dispatch with all the memory
  auto operator<=>(const RouteEffort&) const = default;
};

// For a quick first result: three candidates, as ready dispatch plays them.
inline constexpr RouteEffort kFirstRoute{0, 0, 0, 3, false};

// One network covers all disturbances: a dead worker is a missing holder, a slow one runs fewer
// micro-batches, a slow link costs more. The bound (mesh_bound.h) says how many micro-batches a
// holder can run within an allowed time; the cheapest flow within these numbers says how many
// micro-batches take each way; they are dealt out accordingly, and the step is played. The allowed
// time rises from the bound: with more time the flow can stay at home and off slow links more, but
// the load of some holders is higher. Further candidates: each stage balanced alone, whole
// pipelines loaded by what they can carry, and every micro-batch at home with those of the dead
// dealt evenly. Each is played in the global order and as inputs come; the fastest few also with
// holders that wait for gradients that arrive soon, that run weight gradients first or
// micro-batches of other pipelines earlier or later, and that hold fewer micro-batches than fit
// into memory. Then single micro-batches of the best change their holders; a change is kept unless
// the step gets longer, since an equal step may lead to a shorter one. Ends as soon as the bound is
// reached. Deterministic, unless `watch` ends it.
//
// Source: Gandhi et al., "ReCycle", SOSP 2024 (peers of a dead worker run its micro-batches)
Routed search_route(const Mesh& mesh, const RouteEffort& effort = {}, Watch* watch = nullptr);

// Every micro-batch in its own pipeline; those of a missing holder are dealt to its peers evenly.
Routing even_routing(const Mesh& mesh);

// How many micro-batches each pipeline runs if none leaves it, balanced by the bound; 0 for a
// pipeline with a missing holder. Empty when no pipeline is whole.
std::vector<int32_t> whole_counts(const Mesh& mesh);

// Every micro-batch in one pipeline from end to end; counts[p] of them in pipeline p.
//
// Requires: the counts add up to the step's, and a pipeline that has any is whole
Routing whole_routing(const Mesh& mesh, const std::vector<int32_t>& counts);

// The plan with its work divided among the workers as in `step`, within the plan's memory limits.
//
// Requires: the mesh is the plan's, and the step the mesh's
Plan with_routing(const Plan& plan, const Mesh& mesh, const RoutedStep& step, Dispatch dispatch);

}  // namespace tenuto
