// Executes a collective for one of its members as a dataflow: a move starts when the state that it
// reads is here, not when a round of the whole group is over.
//
// What makes it right: a round says which state a move reads (all moves of a round read the state
// before it), so each chunk has its own chain of sends and receives, in round order. Chains of
// different chunks wait for each other in one thing alone: what goes to one peer goes in round
// order, as the price has it, whichever chunk was ready first. An add is always "what is here +
// what came", in chain order, so every member computes the same sums in the same order on every
// run. Memory: the worker's own sum is read in place and never written; an added chunk lands in one
// of kScratchSlots scratch slots, a plain one directly in the total. Receives are posted in round
// order, so the oldest unfinished round always has its slots and the group cannot stall.
// No I/O here: the caller makes the calls and says when they have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/unit.h"
#include "ir/collective.h"
#include "runtime/element.h"

namespace tenuto {

// Added chunks that may be on their way to one member at once: two hide the way back of a credit,
// two more a late neighbour.
inline constexpr int32_t kScratchSlots = 4;

// One message of a reduction, to be handed to the transport.
struct ReductionCall {
  int32_t index = -1;  // in this member's order: 0 .. call_count - 1
  bool send = false;
  WorkerId peer;
  int32_t round = -1;
  ChunkId chunk;
  std::span<const std::byte> source;  // send: what goes out
  std::span<std::byte> target;        // receive: where it lands
  Duration ready{};                   // send: when the chunk was here and those before it to the
                                      // same peer had set out, on the caller's clock
  uint64_t tally = 0;                 // send: of what goes out
};

// One member's part in one collective over one tensor.
class Reduction {
 public:
  // The sum of `own` over the members of `collective` will be in `total`; both must stay until
  // done(). `own_at`: when `own` was complete. `scratch` is memory to use, grown as needed.
  // `own_tally`: of what `own` is a sum (tally.h).
  //
  // Requires: own and total have equal sizes, of whole elements, are aligned for these and do not
  //           overlap
  Reduction(const Collective& collective, WorkerId self, Element element,
            std::span<const std::byte> own, std::span<std::byte> total, Duration own_at,
            std::vector<int64_t> scratch, uint64_t own_tally = 0);

  // Messages that `self` sends or receives in `collective`, empty chunks included: every call index
  // is below it.
  static int32_t call_count(const Collective& collective, WorkerId self);

  // Calls that can be made now and have not been returned before. Valid until the next call of this
  // object.
  std::span<const ReductionCall> startable();
  // The call has ended: what was sent has left at `at` and may be overwritten, what was received is
  // here since `at` and has this tally.
  void finish(int32_t index, Duration at, uint64_t tally = 0);
  // True when the total is complete and no call is under way.
  bool done() const { return open_ == 0; }
  // The tally of a chunk of the total that is not `wanted`; `wanted` when all are. Requires done().
  uint64_t tally_beside(uint64_t wanted) const;
  // When all was over: the latest arrival that the total is made of or departure of what was sent,
  // `own_at` for a group of one. Requires done().
  Duration done_at() const { return done_at_; }
  // Call `index` as it was returned: for reports.
  WorkerId peer_of(int32_t index) const;
  // Gives the scratch memory back; requires done().
  std::vector<int64_t> take_scratch();

 private:
  enum class State : uint8_t { Waiting, UnderWay, Landed, Done };
  struct Entry {  // one send or receive of this member
    bool send = false, add = false, direct = false;
    State state = State::Waiting;
    bool from_total = false;  // send: reads the total, so the total must wait for it
    int32_t slot = -1;        // receive through scratch
    int32_t next_send = -1;   // send: the next one to the same peer
    bool may_go = false;      // send: those before it to the same peer have gone,
    Duration turn{};          // the last of them at this moment
    int32_t round = 0;
    WorkerId peer;
    ChunkId chunk;
    Duration at{};
    uint64_t tally = 0;
  };
  struct Chain {  // one chunk's entries in round order, sends of a round before its receives
    int64_t first = 0, end = 0;  // elements
    std::vector<int32_t> entries;
    size_t applied = 0;  // entries[0, applied) are over
    bool in_total = false;
    Duration at{};
    uint64_t tally = 0;
  };

  void build(const Collective& collective, WorkerId self);
  bool may_post(int32_t index) const;
  void post_receives();
  void advance(Chain& chain);
  bool advance_entry(Chain& chain);
  void let_next_go(const Entry& sent, Duration at);
  bool sends_over(const Chain& chain, size_t before) const;
  void apply(Chain& chain, Entry& entry);
  void close();
  std::span<std::byte> landing(const Entry& entry);
  // The bytes of a chunk in `all`.
  template <class Byte>
  std::span<Byte> part(std::span<Byte> all, const Chain& chain) const {
    const size_t size = size_of(element_);
    return all.subspan(static_cast<size_t>(chain.first) * size,
                       static_cast<size_t>(chain.end - chain.first) * size);
  }

  const Element element_;
  std::span<const std::byte> own_;
  std::span<std::byte> total_;
  std::vector<int64_t> scratch_;
  size_t slot_words_ = 0;  // of a slot in the scratch
  std::vector<int32_t> free_slots_;
  std::vector<Entry> entries_;
  std::vector<Chain> chains_;
  std::vector<int32_t> unlocked_;  // sends whose turn has come, their chains to be gone along
  std::vector<int32_t> receives_;  // entry indices in round order
  size_t next_receive_ = 0;
  std::vector<ReductionCall> calls_;
  bool returned_ = false;  // calls_ has been handed out
  int32_t open_ = 0;       // entries that are not Done
  Duration done_at_{};
};

}  // namespace tenuto
