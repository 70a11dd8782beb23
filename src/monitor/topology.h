// Finds the places of a cluster (nodes, racks) from the rates between its workers.
#pragma once

#include <cstdint>
#include <vector>

#include "world/cluster.h"
#include "world/link_table.h"

namespace tenuto {

// Rates whose ratio is below this are of one kind of link: measurements of equal links differ less.
inline constexpr double kSameRates = 1.3;

// The place of each worker, numbered from 0 in the order of their first workers. Workers of one
// place reach each other faster than those of other places.
//
// Single linkage: the fastest links join workers into groups, until all are one group. The links
// that did so fall into kinds where the ratio of neighbouring rates is largest, and the groups at
// this point are the places. A place whose own links differ as much is divided again in the same
// way: nodes within racks. Without two kinds of links all are one place. A link has the rate of its
// faster direction: a direction that is slow by itself makes no other place.
//
// Source: P. H. A. Sneath, "The application of computers to taxonomy", J. gen. Microbiol. 17, 1957
// Cost:   O(n^2 log n) for n workers, for each division
std::vector<int32_t> find_places(const LinkTable& links);

// The cluster of these links: each pair of places has the medians of its links, each direction for
// itself. A link whose rate differs by more than a quarter from that median keeps its own figures,
// as an exception.
Cluster cluster_of_links(const LinkTable& links);

}  // namespace tenuto
