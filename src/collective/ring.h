// The ring all-reduce.
//
// Idea:   the members stand in a ring, and every member passes on one chunk a round: first the sums
//         grow as they travel (reduce-scatter), then the finished sums travel (all-gather).
// Rounds: 2 (n - 1) for n members.
// Bytes:  each member sends 2 (n - 1) / n of the tensor, the least that any all-reduce can.
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
//         JPDC 2009.
// Not taken: fewer rounds by halving and doubling, better for small tensors and many members.
#pragma once

#include <vector>

#include "ir/collective.h"

namespace tenuto {

// The ring over `members` in their order, with as many chunks as members. Chunk c is summed in the
// order of members c, c + 1, ...: a fixed order, so that the sum repeats bit for bit.
//
// Requires: at least one member, all different
Collective make_ring(const std::vector<WorkerId>& members);

}  // namespace tenuto
