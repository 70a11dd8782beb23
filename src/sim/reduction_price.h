// The price of one reduction: its collective's moves as a dataflow.
#pragma once

#include <vector>

#include "base/unit.h"
#include "ir/collective.h"
#include "world/cluster.h"

namespace tenuto {

// When each member has the whole sum, given when each has its own contribution. A move starts when
// its sender has the chunk as it is before the round and its link has finished the earlier moves;
// it occupies the link for bytes / rate and arrives a latency later.
//
// Shapes: starts and the result are by place in collective.members
// Cost:   linear in moves + members x chunks
std::vector<Duration> reduction_finish(const Collective& collective,
                                       const std::vector<Duration>& starts, Bytes size,
                                       const Cluster& cluster);

}  // namespace tenuto
