// Finds places (nodes, racks) from the rates between their members.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tenuto {

// If the ratio of two rates is below this, the links are of one kind: equal links differ by less.
inline constexpr double kSameRates = 1.3;

// The rate between two different members; the same both ways, finite and more than 0.
using RateBetween = std::function<double(int32_t one, int32_t other)>;

// The place of each of `count` members, numbered from 0 in the order of their first members.
// Members of one place reach each other faster than those of other places.
//
// Single linkage: takes the links from the fastest to the slowest, and merges the groups that each
// one connects. Of the links that merged two groups, finds the largest ratio of a rate to the next
// lower one; the groups that exist before that lower link is taken are the places. Divides each
// place again (nodes within racks) while its links are of several kinds. With one kind there is one
// place.
//
// Source: P. H. A. Sneath, "The application of computers to taxonomy", J. gen. Microbiol. 17, 1957
// Cost:   O(n^2 log n) for n members, and 8 n^2 bytes, for each division
std::vector<int32_t> find_places(int32_t count, const RateBetween& rate);

}  // namespace tenuto
