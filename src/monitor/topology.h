// Finds the places of a cluster (nodes, racks) from the rates between its workers.
#pragma once

#include <cstdint>
#include <vector>

#include "world/cluster.h"
#include "world/link_table.h"

namespace tenuto {

// If the ratio of two rates is below this, the links are of one kind: equal links differ by less.
inline constexpr double kSameRates = 1.3;

// The place of each worker, numbered from 0 in the order of their first workers. Workers of one
// place reach each other faster than those of other places.
//
// Single linkage: takes the links from the fastest to the slowest, and merges the groups that each
// one connects. Of the links that merged two groups, finds the largest ratio of a rate to the next
// lower one; the groups that exist before that lower link is taken are the places. Divides each
// place again (nodes within racks) while its links are of several kinds. With one kind there is one
// place. A link counts with its faster direction, so one slow direction does not divide a place.
//
// Source: P. H. A. Sneath, "The application of computers to taxonomy", J. gen. Microbiol. 17, 1957
// Cost:   O(n^2 log n) for n workers, for each division
std::vector<int32_t> find_places(const LinkTable& links);

// The cluster of these links. For each direction between two places, and within a place, latency
// and rate are the medians over the links. A link keeps its own figures, as an exception, if its
// rate is more than 1.25 times the median rate or the median is more than 1.25 times its rate.
Cluster cluster_of_links(const LinkTable& links);

}  // namespace tenuto
