// Random chains of layers on random devices, so small that the best of all layouts can be found.
#pragma once

#include <cstdint>

#include "adapt/layout/problem.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// What a search for a layout is given.
struct PlannedChain {
  Model model;
  Cluster cluster;
  LayoutSettings settings;
};

// Draws 3 to 6 layers, 2 to 4 devices and 2 to 4 micro-batches; with half-duplex links 3 to 5
// layers, 2 or 3 devices, 2 or 3 micro-batches. Computing a layer, sending its output and summing
// its gradients take times of the same magnitude. All speeds are 1, memory is unlimited, messages
// have no latency, and the update takes no time.
PlannedChain random_chain(uint64_t seed, bool half_duplex);

// The chain with times that do not shrink with the rows, of the same magnitude as those of the
// layers: a constant for each pass, and updates of stages and layers. One third of the chains has
// no constant, and another third has no updates.
PlannedChain with_constants(PlannedChain chain, uint64_t seed);

}  // namespace tenuto
