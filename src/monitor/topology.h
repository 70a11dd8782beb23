// Finds the places of a cluster (nodes, racks) from the rates between its workers.
#pragma once

#include <cstdint>
#include <vector>

#include "world/cluster.h"
#include "world/link_table.h"
#include "world/places.h"

namespace tenuto {

// The place of each worker. A link counts with its faster direction, so one slow direction does not
// divide a place.
std::vector<int32_t> find_places(const LinkTable& links);

// The cluster of these links. For each direction between two places, and within a place, latency
// and rate are the medians over the links. A link keeps its own figures, as an exception, if its
// rate is more than 1.25 times the median rate or the median is more than 1.25 times its rate.
Cluster cluster_of_links(const LinkTable& links);

}  // namespace tenuto
