// Executes a collective for one of its members as a dataflow: a move starts when the state that it
// reads is here, not when a round of the whole group is over.
//
// Right:  all moves of a round read the state before it. So each chunk has its own chain of sends
//         and receives, in round order; chains of different chunks wait for each other only for
//         their turn to be sent or received. An add is always "what is here + what came", in chain
//         order, so a member computes the same sums in the same order on every run.
// Memory: the worker's own sum is read in place and never written, unless it and the total are the
//         same memory. A chunk that is to be added lands in one of kScratchSlots scratch slots; a
//         chunk that replaces what is here lands directly in the total, unless this member sends
//         the old chunk in the same round. Receives are posted in round order, so the oldest
//         unfinished round always has its slots and the group cannot stall.
// Sends:  sends to one peer leave in round order, as the cost model has it, whichever chunk was
//         ready first. With a limit on sends under way, all sends leave in the order of (round,
//         chunk). Why a limit: messages that leave together share the port, and the first arrives
//         as late as the last. Why this order: the first move in it that is not over can always go
//         on, because all moves before it are over at all members. So its sender has the chunk, no
//         earlier send is under way, and no earlier receive holds a slot. If a later send went
//         first, it could use up the limit while its receiver first waits for an earlier send,
//         which then could not leave: a deadlock.
// Growing: the input may still be in the making, part by part. A chunk of which something is
//         missing is not read, sent or changed; what comes to be added to it stays in its scratch
//         slot. The group cannot stall by this as long as no member's input waits for the group.
//
// No I/O here: the caller makes the calls and says when they have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/unit.h"
#include "collective/complete.h"
#include "collective/slice.h"
#include "ir/collective.h"
#include "runtime/element.h"
#include "transport/transport.h"

namespace tenuto {

// The most chunks to be added that may be on their way to one member at once: two hide the time
// that a grant takes to the sender, two more hide a late neighbour.
inline constexpr int32_t kScratchSlots = 4;

// What a member does in a collective, beside its moves.
struct ReductionSettings {
  Element element = Element::Float32;
  Operation operation = Operation::Sum;
  // The most sends under way at once, which then leave in the order of (round, chunk); 0 = no
  // limit, and only sends to the same peer keep an order.
  int32_t sends_at_once = 0;
  // The most receives posted, counted from the first whose message has not come; 0 = as many as
  // there is scratch for. Why a limit: otherwise a member that is ahead sends chunks that are
  // needed later. These share the receiver's port with the chunk that is needed now, whose sender
  // then becomes late for all others.
  int32_t receives_at_once = 0;
  // True: the wire gives messages to takers, so a chunk whose turn it is to be added is added from
  // the wire's own memory. If the connection is lost meanwhile, nobody knows how much of the chunk
  // was added; so a group that goes on with its partial sums when a member dies must not set this.
  bool takers = false;
  // [chunk] True: the chunk belongs to this member's result; in a reduce-scatter only its own
  // chunks do. Empty = all chunks. Other chunks of the total are left undefined.
  std::vector<bool> kept;
  // [chunk] True: the chunk begins with what is in the total, which may be undefined if a receive
  // replaces it before it is read; false: with the member's own input. Empty = all false.
  std::vector<bool> begun;
};

// What is here of a chunk.
enum class ChunkState : uint8_t {
  Own,    // this member's part alone
  Part,   // a part of the result, of several members
  Whole,  // the final value; but an average is divided only when no send reads the sum any more
};

// One message of a reduction, to be handed to the transport.
struct ReductionCall {
  int32_t index = -1;  // in this member's order: 0 .. call_count - 1
  bool send = false;
  WorkerId peer;
  int32_t round = -1;
  ChunkId chunk;
  std::span<const std::byte> source;  // send: what goes out
  std::span<std::byte> target;        // receive: where it lands
  Taker taker;                        // receive: adds the message; may be null
  Duration ready{};                   // send, on the caller's clock: when the chunk was here and,
                                      // without a limit on sends, all earlier sends to the same
                                      // peer had started
  uint64_t tally = 0;                 // send: of what goes out
};

// The tensor of one member in a collective.
struct ReductionTensor {
  std::span<const std::byte> own;  // the member's input
  std::span<std::byte> total;      // the result
  Duration own_at{};               // when `own` was complete; if it grows, the earliest moment
  uint64_t own_tally = 0;          // of `own` (tally.h), as it is once it is complete
  bool own_grows = false;          // nothing of `own` is complete yet, see Reduction::grow()
};

// One member's part in one collective over one tensor.
class Reduction {
 public:
  // Puts into `total` what the collective makes of the members' `own`; both must stay until done().
  // `scratch` is memory to use, grown as needed. The collective may leave out moves of other
  // members (own_moves in collective/slice.h), but no members.
  //
  // Requires: own and total have equal sizes, of whole elements, are aligned for these and are the
  //           same or do not overlap; an input that grows is not used together with settings.begun
  Reduction(const Collective& collective, WorkerId self, ReductionSettings settings,
            const ReductionTensor& tensor, std::vector<int64_t> scratch = {});
  Reduction(const Reduction&) = delete;  // takers hold its address
  Reduction& operator=(const Reduction&) = delete;

  // How many messages `self` sends and receives in `collective`, those of empty chunks included.
  // Every call index is below this number.
  static int32_t call_count(const Collective& collective, WorkerId self);

  // Calls that can be made now and have not been returned before. Valid until startable(), grow()
  // or finish() is called.
  std::span<const ReductionCall> startable();
  // The elements `more` of the member's input are complete since `at`, and nobody writes them until
  // done().
  //
  // Requires: own_grows; no element is complete twice
  void grow(ElementRange more, Duration at);
  // All of the member's input is complete since `at`.
  //
  // Requires: own_grows
  void grow_to_end(Duration at);
  // The call has ended: what was sent has left at `at` and may be overwritten, what was received is
  // here since `at` and has this tally.
  void finish(int32_t index, Duration at, uint64_t tally = 0);
  // True when the total is complete and no call is under way.
  bool done() const { return open_ == 0 && growing_ == 0; }
  // The first tally of a chunk of the total that differs from `wanted`; `wanted` if none does.
  // Requires done().
  uint64_t tally_beside(uint64_t wanted) const;
  // When the reduction ended: the end of the last receive or send, whichever is later; `own_at` for
  // a group of one. Requires done().
  Duration done_at() const { return done_at_; }
  // The peer of call `index`, for reports.
  WorkerId peer_of(int32_t index) const;
  // What the member waits for: the oldest receive under way, else the oldest send under way. Spans
  // are empty; index -1 = nothing is under way.
  ReductionCall waiting() const;
  // Call `index` as it was returned, without spans.
  ReductionCall about(int32_t index) const;
  // What is here of `chunk`.
  ChunkState chunk_state(ChunkId chunk) const;
  // How far this member is with `chunk`, from which ChunkHistory (collective/complete.h) computes
  // what the member has of it.
  ChunkProgress progress(ChunkId chunk) const;
  // Whether nothing reads or changes `chunk` any more; then an average has been divided.
  bool is_complete(ChunkId chunk) const {
    return chain_of(chunk).open == 0 && chain_of(chunk).missing == 0;
  }
  // Whether a message with `peer` has been returned as a call.
  bool returned(bool send, WorkerId peer, int32_t round, ChunkId chunk) const;
  // Gives the scratch memory back; requires done().
  std::vector<int64_t> take_scratch();

 private:
  // Queued: a send whose chunk is ready, but whose turn has not come.
  enum class State : uint8_t { Waiting, Queued, UnderWay, Landed, Done };
  struct Entry {  // one send or receive of this member
    bool send = false, add = false, direct = false;
    State state = State::Waiting;
    bool from_total = false;  // send: reads the total, so the total must wait for it
    int32_t slot = -1;        // receive through scratch
    bool taken = false;       // receive: a taker adds it
    int32_t round = 0;
    WorkerId peer;
    ChunkId chunk;
    Duration at{};
    uint64_t tally = 0;
    int32_t next_send = -1;  // send, no limit: the next one to the same peer
    Duration turn{};         // send: when all earlier sends to the same peer had started
  };
  struct Chain {  // one chunk's entries in round order, sends of a round before its receives
    int64_t first = 0, end = 0;  // elements
    int64_t missing = 0;         // elements of the member's input that are not complete
    std::vector<int32_t> entries;
    size_t applied = 0;  // entries[0, applied) are over
    int32_t open = 0;    // entries that are not Done
    int32_t coming = 0;  // receives that are not applied
    bool in_total = false;
    Duration at{};
    uint64_t tally = 0;
  };

  const Chain& chain_of(ChunkId chunk) const;
  void build(const Collective& collective, WorkerId self);
  void add_entry(const Move& move, bool send, int32_t round);
  void in_turn(std::vector<int32_t>& entries) const;
  bool may_post(int32_t index) const;
  void line_up();
  void post_sends();
  void start_send(int32_t index);
  void finish_entry(Chain& chain, Entry& entry);
  void complete(Chain& chain);
  bool kept(const Chain& chain) const;
  bool in_window();
  void post_receives();
  void advance(Chain& chain);
  void add_input(Chain& chain, int64_t count, Duration at);
  void go_on();
  bool sends_over(const Chain& chain, size_t before) const;
  void apply(Chain& chain, Entry& entry);
  void close();
  std::span<std::byte> landing(const Entry& entry);
  // What a taker needs to know: the reduction, and the entry that it adds.
  struct Taking {
    Reduction* of = nullptr;
    int32_t index = -1;
  };
  static void take(void* taking, std::span<const std::byte> message);
  void add(const Chain& chain, std::span<const std::byte> came);
  // The bytes of a chunk in `all`.
  template <class Byte>
  std::span<Byte> part(std::span<Byte> all, const Chain& chain) const {
    const size_t size = size_of(settings_.element);
    return all.subspan(static_cast<size_t>(chain.first) * size,
                       static_cast<size_t>(chain.end - chain.first) * size);
  }

  const ReductionSettings settings_;
  const int64_t member_count_;
  const bool in_place_;
  std::span<const std::byte> own_;
  std::span<std::byte> total_;
  std::vector<int64_t> scratch_;
  size_t slot_words_ = 0;  // size of a slot in the scratch
  std::vector<int32_t> free_slots_;
  std::vector<Entry> entries_;
  std::vector<Taking> takings_;  // [entry], with takers
  std::vector<Chain> chains_;
  std::vector<int32_t> receives_;  // entry indices in round order
  size_t next_receive_ = 0;
  size_t first_coming_ = 0;     // place in receives_: all before it have come
  std::vector<int32_t> sends_;  // entry indices; with a limit by (round, chunk)
  size_t next_send_ = 0;
  std::vector<int32_t> heads_;  // without a limit: the next send to each peer, -1 = none
  int32_t sending_ = 0;         // sends under way
  std::vector<ReductionCall> calls_;
  bool returned_ = false;  // calls_ has been handed out
  int32_t open_ = 0;       // entries that are not Done
  int32_t growing_ = 0;    // chains with missing elements
  Duration done_at_{};
};

}  // namespace tenuto
