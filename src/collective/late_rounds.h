// The rounds after the late member has come: it gives its input to the others, which have their
// sums, and all end with the result.
//
// Idea:   each round the late member meets another member, and both get a whole chunk. The other
//         members spread it in the next rounds. Groups of one or two members act as the nodes of a
//         scheme for a power of two, so that every count of members takes the fewest rounds.
// Rounds: k + L - 1 for k chunks, L = ceil(log2 n): no schedule has fewer, since the last chunk is
//         first sent in round k - 1, and from then on its holders can at most double each round.
//         One more for n = 3 with k > 2.
// Bytes:  the others receive k chunks each and send k + L - 1 at most; so does the late one.
// Source: Devraj et al., "Efficient AllReduce with Stragglers" (arXiv 2505.23523), for powers of
//         two; the rounds for other counts and free k are our own (docs/decisions/038).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace tenuto {

// What a transfer carries.
enum class Carries : uint8_t {
  Raw,   // the late member's own contribution, added by the chunk's owner
  Part,  // the owner's sum over all the others, added by the late member in the same round
  Whole,
};

// One chunk from one member to another, by place: the late member has the last one, n - 1.
struct Transfer {
  int32_t from = 0, to = 0, chunk = 0;
  Carries carries = Carries::Whole;
};

// The whole exchange.
struct LateRounds {
  std::vector<std::vector<Transfer>> rounds;
  std::vector<int32_t> owners;  // [chunk] place of the owner: it has the sum and meets the late one
};

// The count of chunks that `late_rounds` makes when asked for `chunks`. It is larger only for six
// members, whose scheme for more than five chunks needs a multiple of five.
int32_t late_chunks(int32_t members, int32_t chunks);

// The rounds for `members` members and late_chunks(members, chunks) chunks.
//
// Requires: members >= 2, chunks >= 1
// Errors:   Infeasible/Call  the scheme found no place for a member; no such size is known
// Cost:     O(n log n) a round
Result<LateRounds> late_rounds(int32_t members, int32_t chunks);

}  // namespace tenuto
