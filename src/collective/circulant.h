// Reduce-scatter and all-gather over a circulant graph: as many rounds as the count of members can
// be halved, and every block moved once.
//
// Idea:   in a round of the reduce-scatter each member gives away the upper half of the blocks that
//         it still sums, to the member that far ahead; the all-gather is the same run backwards.
//         For powers of two these are the rounds and bytes of recursive halving and doubling, for
//         other counts no member has to stand aside first.
// Source: Traff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
//         arXiv 2410.14234.
// Not taken: partners by exclusive or, which keep traffic among neighbours in a hierarchy, but cost
//         two rounds and twice the bytes more where the count is no power of two.
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
// All end with every block of its member.
std::vector<Round> circulant_all_gather(const std::vector<WorkerId>& circle, const Blocks& blocks);

// The same along a ring: one block at a time, and scratch for one.
std::vector<Round> ring_reduce_scatter(const std::vector<WorkerId>& circle, const Blocks& blocks);
// The second half of the ring.
std::vector<Round> ring_all_gather(const std::vector<WorkerId>& circle, const Blocks& blocks);

// One chunk for each of `count` members.
Blocks one_chunk_each(size_t count);

}  // namespace tenuto
