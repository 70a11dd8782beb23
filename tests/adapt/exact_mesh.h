// The best step of a tiny mesh, by trying everything.
#pragma once

#include "adapt/mesh.h"

namespace tenuto {

// The result of trying everything.
struct ExactStep {
  Duration makespan{};  // the least, or `known` when nothing is faster
  bool proved = false;  // no: the search gave up, and a faster step may exist
};

// The least makespan of a step with a barrier, over all routings and all orders of the ops. Tries
// every sequence of starts in the order of time, and cuts one off when it cannot end before the
// best step that is known.
//
// Requires: messages occupy no links of the mesh (down_busy and up_busy are 0)
ExactStep exact_step(const Mesh& mesh, Duration known, int64_t most_nodes);

}  // namespace tenuto
