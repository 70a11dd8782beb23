// The best step of a tiny mesh, by trying everything.
#pragma once

#include "adapt/mesh.h"

namespace tenuto {

// What trying everything found.
struct ExactStep {
  Duration makespan{};  // the least, or `known` when nothing is faster
  bool proved = false;  // no: it was given up, and something faster may be left
};

// The least makespan of a step with a barrier over all routings and all orders of the ops: every
// sequence of starts in the order of time, cut off where what is left takes at least as long as the
// best that is known. Of the mesh, links must not be occupied by messages (down_busy, up_busy).
ExactStep exact_step(const Mesh& mesh, Duration known, int64_t most_nodes);

}  // namespace tenuto
