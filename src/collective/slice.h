// A collective in smaller pieces, and the pieces of it that one member needs.
//
// Idea:   a chunk is cut into slices, and each move of it into as many moves. A member adds one
//         slice while the next one travels, and passes on the first slice before the last one has
//         come.
// Right:  chunk c of n elements is [c n / k, (c + 1) n / k), and its slice i of p is chunk c p + i
//         of k p, so the slices of a chunk cover exactly its elements. Each slice takes the moves
//         of its chunk, so every number is made of the same operands in the same order: the bits
//         are the same with any count of slices.
// Not taken: more chunks from the algorithm itself; the ring would then add in another order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/collective.h"

namespace tenuto {

// The same collective with every chunk cut into `slices`; the slices of a move follow each other.
//
// Requires: slices >= 1, chunk_count x slices within int32_t
Collective sliced(const Collective& collective, int32_t slices);

// How many slices each of `chunks` chunks of a tensor of `bytes` is cut into, so that a slice has
// about `slice_bytes`; 0 `slice_bytes` = uncut. At least 1, at most kMostSlices.
int32_t slices_for(int64_t bytes, int32_t chunks, int64_t slice_bytes);
// A bound on the moves of one call, whatever the tensor: the pipeline gains nothing beyond it.
inline constexpr int32_t kMostSlices = 1024;

// The same collective, in which each move of chunk c happens `delays[c]` rounds later. Members send
// in the order of rounds, so give short delays to the chunks that all members have early. With the
// delays 0, 1, 2 and so on the chunks form a pipeline, and nearly every link is busy in nearly
// every round. If instead each chunk waited until the chunk before it was all-reduced, most links
// would be idle. The moves of one chunk keep their order, so the bits of the result are the same.
//
// Requires: a delay of at least 0 for each chunk
Collective delayed(const Collective& collective, std::span<const int32_t> delays);

// The delays of delayed() with which chunks travel in the order in which a growing tensor of
// `elements` completes them. `parts` are ranges of the tensor in the order in which they become
// complete. What is in no part is complete from the start, what is in several with the last of
// them. Of chunks that become complete together, the last one goes first, because a gradient grows
// from its end.
//
// Shapes: by chunk; 0 .. chunks - 1, each once
// Requires: chunks >= 1; each part lies within the tensor
// Cost: linear in the parts and the chunks in each of them, and a sort of the chunks
std::vector<int32_t> delays_by_growth(int64_t elements, int32_t chunks,
                                      std::span<const ElementRange> parts);

// Only the moves that `self` sends or receives, in the same rounds; members and chunks stay as they
// are.
Collective own_moves(const Collective& collective, WorkerId self);

// The moves of one chunk, as a collective of that chunk alone, whose number becomes 0.
Collective of_chunk(const Collective& collective, ChunkId chunk);

}  // namespace tenuto
