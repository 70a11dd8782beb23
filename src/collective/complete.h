// Completes an all-reduce in which members died: which sum all survivors end with, and the moves
// that produce it.
//
// Idea:    what a member has of a chunk follows from the procedure and from how many of its sends
//          and receives of the chunk are over. So each survivor works out what it has and tells the
//          others; from that all derive the same completion.
// Outcome: 1. If a survivor has ended the call already, its result, which cannot be taken back.
//          2. Else, if survivors hold every chunk of a sum over all survivors (and maybe members
//          that died), that sum; of several such sums the one over the most members.
//          3. Else the sum over the survivors, made of the partial sums without dead members and of
//          the survivors' inputs. The outcome is the same for all chunks: chunks that are sums over
//          different members would be no gradient. If a late member dies before it comes, case 2
//          holds: the others have their sums, and only spread them.
// Rounds:  the partial sums of a chunk are added pairwise until one survivor has the total. From
//          there it goes to all: along the ring of survivors if there is a chunk for each of them,
//          else by doubling. Moves take the first rounds in which their ports are free.
// Source:  docs/decisions/042.
// Not taken: a minimum of moves. To choose the sums is the exact cover problem; taking the largest
//          first uses the fewest sums in all but a few states of small groups.
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
  // How many of its sends and receives of the chunk are over, in round order, sends of a round
  // first.
  int32_t over = 0;
  bool torn = false;  // the next one is a receive into the total, and part of it may be there
};

// What a member has of one chunk.
struct ChunkHolding {
  bool own = false;  // its own input, unchanged
  MemberSet total;   // the members whose sum the total is; none = it holds nothing
  auto operator<=>(const ChunkHolding&) const = default;
};

// What a member has of a call.
struct MemberHolding {
  std::vector<ChunkHolding> chunks;  // empty where the call has ended
  bool ended = false;                // the call has ended here: each chunk is whole, and stays so
  MemberSet contributors;            // ended: the members whose sum the result is
};

// What a member's chunk begins with.
enum class ChunkBegin : uint8_t {
  Nothing,  // it is received later
  Own,      // its own input
  Total,    // what is in the total
};

// How survivors end a call that members died in.
struct Completion {
  MemberSet contributors;    // the members whose sum the result is; none = there is no result
  bool whole = false;        // survivors had all of the result, which is only spread
  std::vector<bool> summed;  // [chunk] true: the result is summed now; false: it was there
  Collective collective;     // of the survivors, in their order
  std::vector<std::vector<ChunkBegin>> begins;  // [place in the group before the deaths][chunk]
  std::string reason;                           // a sentence
};

// What all members have of each chunk at any time of a procedure, or of a completion.
class ChunkHistory {
 public:
  // The history of an all-reduce from its beginning.
  //
  // Requires: it passes `examine`
  explicit ChunkHistory(const Collective& collective);
  // The history of a completion among survivors of `members`, which had `holdings` when it began.
  ChunkHistory(const Completion& completion, const std::vector<WorkerId>& members,
               std::span<const MemberHolding> holdings);
  // What the member at `place` has of `chunk` after `progress`; it had `before` when this began.
  // `keeps`: its input is kept beside the total, else the total overwrites it.
  ChunkHolding holding(int32_t place, int32_t chunk, ChunkProgress progress, bool keeps,
                       const ChunkHolding& before) const;
  // How many sends and receives of `chunk` the member at `place` has in all.
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

// Makes the completion of a call of `members`; those at the places in `alive` survive. Equal inputs
// give equal completions, move by move. `elements` of the tensor says which chunks are empty.
//
// Shapes:   holdings by place; those of dead members are not read. A total includes its holder
// Requires: at least one survivor and one chunk
Completion complete(const std::vector<WorkerId>& members, const MemberSet& alive,
                    std::span<const MemberHolding> holdings, int32_t chunks, int64_t elements);

}  // namespace tenuto
