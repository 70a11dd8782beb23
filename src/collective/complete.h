// What becomes of an all-reduce when members die in it: which sum all survivors end with, and the
// moves that bring it there.
//
// Idea:    what a member has of a chunk follows from the procedure and from how many of its sends
//          and receives of the chunk are over. So survivors only have to tell each other how far
//          they are, and each works out by itself, and like all others, what is where.
// Outcome: what a survivor has ended with already, since it cannot be taken back. Else, where every
//          chunk of some sum over all survivors (and members that died) is at a survivor, that sum,
//          of the most members. Else the sum over the survivors, made of what sums without the dead
//          are here and of own input. It is one outcome for all chunks: a total that is of all
//          members here and of some there is nobody's gradient.
//          Where a late member dies while it is waited for, the others' sums are such a sum, and
//          only have to be spread.
// Rounds:  sums go to one of their holders, pairwise; whole chunks from there to all, along the
//          ring of survivors where there is a chunk for each of them, else by doubling. Packed as
//          ports are free, one message a port.
// Source:  docs/decisions/042.
// Not taken: the least moves. Which sums to take is the problem of exact cover; the largest first
//          is the least number of them in all states of small groups but a few.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/member_set.h"
#include "ir/collective.h"

namespace tenuto {

// How far a member is with one chunk.
struct ChunkProgress {
  // Of its sends and receives of the chunk, in round order, sends of a round first.
  int32_t over = 0;
  bool torn = false;  // the next one lands in the total, and may have done so in part
};

// What a member has of one chunk.
struct ChunkHolding {
  bool own = false;  // its own input as it was
  MemberSet total;   // of whom the total is the sum; none = it holds nothing
  auto operator<=>(const ChunkHolding&) const = default;
};

// What a member has of a call.
struct MemberHolding {
  std::vector<ChunkHolding> chunks;  // none where the call has ended
  bool ended = false;                // the call has ended here: each chunk is whole, and stays so
  MemberSet contributors;            // ended: of whom the result is the sum
};

// With what a member's chunk begins.
enum class ChunkBegin : uint8_t {
  Nothing,  // it is put later
  Own,      // its own input
  Total,    // what is in the total
};

// How survivors end a call that members died in.
struct Completion {
  MemberSet contributors;    // of whom the result is the sum; none = it cannot be had
  bool whole = false;        // all of it was there, and is only spread
  std::vector<bool> summed;  // [chunk] whether the result is made of parts; else it was there
  Collective collective;     // of the survivors, in their order
  std::vector<std::vector<ChunkBegin>> begins;  // [place in the group that was][chunk]
  std::string reason;                           // a sentence
};

// What all members have of each chunk at any time of a procedure, or of a completion.
class ChunkHistory {
 public:
  // Of an all-reduce from its beginning.
  //
  // Requires: it passes `examine`
  explicit ChunkHistory(const Collective& collective);
  // Of a completion among survivors of `members` that had `holdings` when it began.
  ChunkHistory(const Completion& completion, const std::vector<WorkerId>& members,
               std::span<const MemberHolding> holdings);
  // What the member at `place` has of `chunk`, of which it had `before` when this began. `keeps`:
  // its input is kept beside the total, else the total takes its place.
  ChunkHolding holding(int32_t place, int32_t chunk, ChunkProgress progress, bool keeps,
                       const ChunkHolding& before) const;
  // Sends and receives of `chunk` at a place.
  int32_t length(int32_t place, int32_t chunk) const;

 private:
  struct State {  // after a send or receive
    MemberSet total;
    bool received = false;  // something has come
  };
  const std::vector<State>& states(int32_t place, int32_t chunk) const {
    return states_[static_cast<size_t>(place * chunks_ + chunk)];
  }
  void play(const Collective& collective, const std::vector<WorkerId>& members);

  int32_t members_, chunks_;
  std::vector<std::vector<State>> states_;  // [place, chunk], by sends and receives that are over
};

// Makes the completion of a call of `members`, of whom those at the places of `alive` live. The
// same inputs have the same outcome, move by move.
//
// Shapes:   holdings by place; those of the dead are not read. A total is of its holder, too
// Requires: somebody lives; a chunk or more; `elements` of the tensor, for chunks without any
Completion complete(const std::vector<WorkerId>& members, const MemberSet& alive,
                    std::span<const MemberHolding> holdings, int32_t chunks, int64_t elements);

}  // namespace tenuto
