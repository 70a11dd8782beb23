// What published systems do about mixtures of troubles: baselines for the router.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adapt/mesh_play.h"
#include "adapt/mixture.h"

namespace tenuto {

// A step with troubles: the mesh as it is, and what it was.
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
// - nothing: the lists of the step without troubles, as they are.
// - orders: everything at home, ready dispatch with the true times (orders that follow delays).
// - peers: the dead's micro-batches dealt evenly to their peers; lists made for a cluster without
//   other troubles.
// - both: routed as peers, ready dispatch with the true times.
// - drop: the best of leaving out the pipelines with dead workers, also those with slow ones, or
//   all that are hit; the rest evenly loaded.
// - pipelines: whole pipelines loaded by what they can carry.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026 (orders); Gandhi et al., "ReCycle", SOSP
//         2024 (peers)
const std::vector<Response>& responses();

// The time of a step whose holders run fixed lists, at the mesh's pace; nothing when they stand
// still.
std::optional<Duration> listed_time(const Mesh& mesh, const Routing& routing,
                                    const TaskLists& lists);

}  // namespace tenuto
