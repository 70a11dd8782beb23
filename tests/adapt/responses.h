// What published systems do about mixtures of troubles: baselines for the router.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adapt/mesh_play.h"
#include "adapt/mixture.h"

namespace tenuto {

// A step with troubles: the undisturbed mesh, and what disturbs it.
struct Mixture {
  MixtureSize size;
  std::vector<Mishap> troubles;
  int32_t slots = 0;
  Pace pace = Pace::Barrier;
};

// A way to respond.
struct Response {
  std::string name;
  // The step's time; nothing when the response cannot run the step.
  std::function<std::optional<Duration>(const Mixture&)> time;
};

// In the order of the columns:
// - nothing: the lists of the step without troubles, unchanged.
// - orders: every micro-batch stays in its pipeline; ready dispatch with the true times (orders
//   that follow delays).
// - peers: the micro-batches of dead workers are dealt evenly to their peers; the lists are made
//   for a cluster without other troubles.
// - both: routed as peers, ready dispatch with the true times.
// - drop: drops the pipelines with dead workers, or also those with slow workers, or all with any
//   trouble, whichever is fastest; the others are evenly loaded.
// - pipelines: each whole pipeline gets as many micro-batches as its speed allows.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026 (orders); Gandhi et al., "ReCycle", SOSP
//         2024 (peers)
const std::vector<Response>& responses();

// The time of a step whose holders run fixed lists, at the mesh's pace. Returns nothing if they
// deadlock.
std::optional<Duration> listed_time(const Mesh& mesh, const Routing& routing,
                                    const TaskLists& lists);

}  // namespace tenuto
