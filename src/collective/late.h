// What the algorithms with late members share: who sums up what while the others wait.
#pragma once

#include <vector>

#include "collective/late_rounds.h"
#include "ir/procedure.h"

namespace tenuto {

// The rounds by which `early` members end with the sums of the chunks that they own; a chunk is a
// block's worth of work wherever it is. With a chunk for everybody along the ring: scratch for one
// block, neighbours only. With fewer chunks than members over the circulant graph, where the owners
// stand evenly apart, so that about one tensor goes through each port instead of one for each
// owner.
//
// Shapes: owners by chunk, each among `early`
std::vector<Round> early_rounds(const std::vector<WorkerId>& early,
                                const std::vector<WorkerId>& owners);

// Everyone but `left_out`, in order.
std::vector<WorkerId> without(const std::vector<WorkerId>& members,
                              const std::vector<WorkerId>& left_out);

// How long rounds are: how many, and chunks of the largest message of each, added up.
struct RoundLength {
  int32_t rounds = 0, chunks = 0;
};
// Counts that; the rounds are those of a procedure.
RoundLength length_of(const std::vector<Round>& rounds);
// The length of the early rounds of `late-one`, without making them.
//
// Requires: members >= 2; chunks as late_chunks says
RoundLength early_length(int32_t members, int32_t chunks);
// The rounds of the exchange with the late member: k + L - 1, one more for three members with more
// than two chunks.
int32_t exchange_rounds(int32_t members, int32_t chunks);

// The late rounds among real members: `others` by place, and the late one.
std::vector<Round> rounds_among(LateRounds late_rounds, const std::vector<WorkerId>& others,
                                WorkerId late);

}  // namespace tenuto
