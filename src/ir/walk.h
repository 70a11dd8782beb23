// A worker's place in its list, without a clock and without I/O. check and the runtime both use it,
// so what an op waits for is decided in one place. (The price has a faster form of the same rules,
// sim/program.h.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/compute_lane.h"
#include "ir/plan.h"
#include "ir/stores.h"

namespace tenuto {

// The lanes of one worker. A lane runs its ops in list order (but Compute under Dispatch::Ready by
// the rule of ir/dispatch.h); ops of different lanes wait only for the values that they read. One
// send and one receive lane per peer and direction.
enum class LaneKind : uint8_t {
  Compute,
  Reduce,
  SendForward,
  SendBackward,
  RecvForward,
  RecvBackward
};

// The kind of the lane that runs an op (message lanes of one kind differ by the op's peer).
LaneKind lane_of(const Op& op);

// The most receives of one lane that may be posted at once. Each holds a buffer from its posting
// until its value is freed, and buffers are granted in list order. Norms and clip decisions are not
// freed in the step: a lane that receives more than this number of them gets a buffer for each. The
// number bounds the memory for arrivals, and is large enough that a link whose latency is 30 ops
// does not wait for a buffer.
//
// A lane whose two ends list its messages in the same order needs fewer buffers: an activation is
// in transit or in its buffer only while its sender holds the micro-batch, a gradient only while
// its receiver does. So no message ever waits for its buffer if the lane has most_in_flight()
// buffers (of the sender for activations, of the receiver for gradients) and one more for each norm
// or clip decision.
inline constexpr int32_t kReceivesAhead = 32;

// The most micro-batches that, at any timing, can be between the start of their forward and the end
// of their input gradient at the worker. A micro-batch that is there at two stages of the worker
// counts twice. 0 = the worker has no forwards.
//
// Cost: linear in the worker's ops
int32_t most_in_flight(const Plan& plan, const Schedule& schedule, WorkerId worker);

// The progress of one worker through its list. The list is `schedule.lists[self]` of the plan's
// schedule or evaluation; both must outlive the walk. After construction only waiting(), missing()
// and stored() allocate memory.
//
// An op that can start stays able to start until it does: each kind of op keeps its list order and
// takes memory and buffers in that order; giving back memory or a buffer makes no op wait; and no
// value is consumed twice. So all ways to walk a plan to its end, or to where it is stuck, run the
// same ops, and one walk tells whether any timing can deadlock (docs/decisions/015).
class Walk {
 public:
  // Requires: `schedule` is plan.schedule or plan.evaluation, self is one of its lists.
  // `receives_ahead`: in place of kReceivesAhead. `stored`: the values in the worker's store before
  // its list begins, each once.
  Walk(const Plan& plan, const Schedule& schedule, WorkerId self,
       int32_t receives_ahead = kReceivesAhead, std::span<const Value> stored = {});
  // List indices of the ops that can start now, by lane, then place: the next op of each lane if
  // all that it reads is in the store; in a receive lane every receive that has a buffer. Valid
  // until the next call that changes the walk. An op stays here until it is started.
  std::span<const int32_t> startable();
  // The op at `index` has started: its lane is busy. A message lane is free again at once: receives
  // are posted ahead, and a send does not wait until the previous one arrives. Requires: it is
  // startable.
  void start(int32_t index);
  // The op at `index` has ended: adds what it writes, removes what it frees. Returns the freed
  // values, valid until the next call. Requires: it has started.
  std::span<const Value> finish(int32_t index);
  // True when every op has ended.
  bool done() const { return ended_ == static_cast<int32_t>(list_.size()); }
  // The lane heads that cannot start: what a hang report prints.
  std::vector<int32_t> waiting() const;
  // Whether all that the op at `reader` still misses is what the op at `writer` will write.
  bool waits_only_for(int32_t reader, int32_t writer) const;
  // The values that the op at `index` reads and that are not here: why it waits.
  std::vector<Value> missing(int32_t index) const;
  // Everything in the store now.
  std::vector<Value> stored() const;
  // An op that writes a value that is stored before the list begins, or that another op of the list
  // writes too (double work); -1 = none.
  int32_t double_writer() const { return double_writer_; }
  // An op that consumes a value that another op of the list consumes too; -1 = none.
  int32_t double_reader() const { return double_reader_; }
  // Micro-batches between the start of a forward and the end of its weight gradient.
  int32_t held() const { return compute_.held(); }
  // The op at `index`.
  const Op& op(int32_t index) const { return list_[static_cast<size_t>(index)]; }
  // The list as a whole.
  std::span<const Op> list() const { return list_; }

 private:
  enum class State : uint8_t { Waiting, Offered, Started, Ended };
  // One lane: a run of lane_ops_, and how far it has come.
  struct Lane {
    LaneKind kind = LaneKind::Compute;
    WorkerId peer;
    int32_t next = 0, end = 0;  // into lane_ops_
    int32_t granted = 0;        // receive lanes: buffers in use
    int32_t buffers = 0;        // receive lanes: buffers in all
    bool busy = false;
  };
  void index_lanes();
  void count_buffers(const Plan& plan, const Schedule& schedule, WorkerId self, int32_t most);
  void index_values(int32_t stage_count, std::span<const Value> stored);
  void store(std::span<const Value> stored);
  void index_readers();
  int32_t compute_candidate() const { return compute_.candidate(missing_.data()); }
  void offer_from(Lane& lane, int32_t lane_index);
  void insert_offer(int32_t index, int32_t lane_index);
  void remove_offer(int32_t index);
  void appear(int32_t value);
  void vanish(int32_t value);
  void end_sends(int32_t index);

  std::span<const Op> list_;
  ComputeLane compute_;

  // Ops, by place in the list. Runs of value ids: of op i, [first[i], first[i + 1]).
  std::vector<State> state_;
  std::vector<int32_t> lane_;
  std::vector<int32_t> missing_;  // reads that are not in the store
  std::vector<int32_t> read_first_, read_, write_first_, write_, free_first_, free_;

  // Values, by id.
  std::vector<Value> names_;
  std::vector<uint8_t> present_;
  int32_t stored_count_ = 0;         // values stored before the list: the first ids
  std::vector<int32_t> recv_lane_;   // the receive lane whose buffer it lies in; -1 = none
  std::vector<int32_t> sends_;       // sends that read it, do not free it and have not ended
  std::vector<uint8_t> freed_late_;  // an op has freed it, but such a send has not ended
  std::vector<int32_t> reader_first_, reader_;

  std::vector<Lane> lanes_;  // [0] = compute: its ops are compute_'s
  std::vector<int32_t> lane_ops_;

  std::vector<int32_t> offers_;  // startable ops of all lanes but Compute
  std::vector<int32_t> startable_;
  std::vector<Value> freed_;
  int32_t ended_ = 0;
  int32_t double_writer_ = -1, double_reader_ = -1;
};

}  // namespace tenuto
