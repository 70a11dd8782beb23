// What the algorithms with late members share: mainly how the early members make their sums.
#pragma once

#include <vector>

#include "collective/late_rounds.h"
#include "ir/procedure.h"

namespace tenuto {

// The rounds in which the `early` members sum up the chunks; each member ends with the sums of the
// chunks that it owns. If every member owns a chunk, the sums go along the ring: this needs scratch
// for one block, and only neighbours talk. Else they go over the circulant graph with the owners
// evenly spaced, which takes less time: on a ring, n members need n - 1 rounds even if few of them
// own chunks, and the largest message of every round has all chunks of one owner.
//
// Shapes: owners by chunk, each among `early`
std::vector<Round> early_rounds(const std::vector<WorkerId>& early,
                                const std::vector<WorkerId>& owners);

// Everyone but `left_out`, in order.
std::vector<WorkerId> without(const std::vector<WorkerId>& members,
                              const std::vector<WorkerId>& left_out);

// The length of rounds: how many there are, and the chunks of each one's largest message, added up.
struct RoundLength {
  int32_t rounds = 0, chunks = 0;
};
// The length of the rounds of a procedure.
RoundLength length_of(const std::vector<Round>& rounds);
// The length of the early rounds of `late-one`, without making them.
//
// Requires: members >= 2; chunks as late_chunks says
RoundLength early_length(int32_t members, int32_t chunks);
// The rounds of the exchange with the late member: k + L - 1, one more for three members with more
// than two chunks.
int32_t exchange_rounds(int32_t members, int32_t chunks);

// Names the members of the late rounds: `others` by place, then `late` in the last place.
std::vector<Round> rounds_among(LateRounds late_rounds, const std::vector<WorkerId>& others,
                                WorkerId late);

}  // namespace tenuto
