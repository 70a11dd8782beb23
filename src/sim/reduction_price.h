// The price of one reduction: its collective's moves as a dataflow.
#pragma once

#include <vector>

#include "base/unit.h"
#include "ir/collective.h"
#include "world/cluster.h"
#include "world/port_sides.h"

namespace tenuto {

// When each member has the whole sum, given when each has its own contribution. A move starts when
// its sender has the chunk as it is before the round and its link has finished the earlier moves;
// it occupies the link for bytes / rate and arrives a latency later. With ports, it starts when
// those on its way are free, too, and occupies them; of the moves of a round, the one whose chunk
// is there first comes first.
//
// Shapes: starts and the result are by place in collective.members
// Cost:   linear in moves + members x chunks
std::vector<Duration> reduction_finish(const Collective& collective,
                                       const std::vector<Duration>& starts, Bytes size,
                                       const Cluster& cluster, PortSides& ports);
// The same when members have their own contributions in parts, as Reduction::grow() of
// runtime/reduction.h takes them: starts[i x chunk_count + c] is when member i has its chunk c.
std::vector<Duration> reduction_finish_in_parts(const Collective& collective,
                                                std::vector<Duration> starts, Bytes size,
                                                const Cluster& cluster, PortSides& ports);
// As the first when nothing else occupies the ports.
std::vector<Duration> reduction_finish(const Collective& collective,
                                       const std::vector<Duration>& starts, Bytes size,
                                       const Cluster& cluster);

}  // namespace tenuto
