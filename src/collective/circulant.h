// Reduce-scatter and all-gather over a circulant graph, for any count n of members: ceil(log2 n)
// rounds, in which each member sends n - 1 blocks.
//
// Idea:   in a round of the reduce-scatter each member that still sums m blocks sends the upper
//         half of them to the member ceil(m / 2) places ahead; the all-gather does the same in
//         reverse. For powers of two these are the rounds and bytes of recursive halving and
//         doubling; other counts need no extra round in which some members hand over their input.
// Source: Traff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
//         arXiv 2410.14234.
// Not taken: partners by exclusive or. They keep traffic among neighbours in a hierarchy, but where
//         the count is no power of two they cost two more rounds and twice the bytes.
#pragma once

#include <vector>

#include "ir/collective.h"

namespace tenuto {

// Chunks of each member of a circle: its block.
using Blocks = std::vector<std::vector<ChunkId>>;

// Member i of the circle ends with the sum of its block. Empty blocks are not moved.
//
// Shapes: blocks by place in circle
std::vector<Round> circulant_reduce_scatter(const std::vector<WorkerId>& circle,
                                            const Blocks& blocks);
// Member i begins with block i; all members end with all blocks.
std::vector<Round> circulant_all_gather(const std::vector<WorkerId>& circle, const Blocks& blocks);

// The same along a ring: one block at a time, and scratch for one.
std::vector<Round> ring_reduce_scatter(const std::vector<WorkerId>& circle, const Blocks& blocks);
// The second half of the ring.
std::vector<Round> ring_all_gather(const std::vector<WorkerId>& circle, const Blocks& blocks);

// One chunk for each of `count` members.
Blocks one_chunk_each(size_t count);

}  // namespace tenuto
