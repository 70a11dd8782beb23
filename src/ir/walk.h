// A worker's place in its list. No clock and no I/O: check, price and the runtime all use it, so
// what an op waits for is decided in one place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/compute_lane.h"
#include "ir/plan.h"
#include "ir/stores.h"

namespace tenuto {

// The lanes of one worker. Within a lane, list order (Compute under Dispatch::Ready: see Plan);
// between lanes, only values order. One send and one receive lane per peer and direction.
enum class LaneKind : uint8_t {
  Compute,
  Reduce,
  SendForward,
  SendBackward,
  RecvForward,
  RecvBackward
};

// The lane that runs an op (its peer tells the lanes of one kind apart).
LaneKind lane_of(const Op& op);

// Receives of one lane that may be posted at once, at most. Each holds a buffer from its posting
// until its value is freed, and buffers are granted by name in list order: the number bounds the
// memory for arrivals, and it is large enough that a link whose latency is 30 ops does not wait for
// a grant.
//
// A lane whose two ends have its messages in one order posts no more than there are slots for: the
// activation of a micro-batch is on its way or in its buffer only while its sender holds the
// micro-batch, a gradient only while its receiver does. So most_in_flight() of that worker, and one
// for each norm or verdict, are enough that no message ever waits for its buffer.
inline constexpr int32_t kReceivesAhead = 32;

// Micro-batches, each counted once for each stage of the worker, that can be between the start of
// their forward and the end of their input gradient there, at most, whatever the timing; 0 = the
// worker has no forwards.
//
// Cost: linear in the worker's ops
int32_t most_in_flight(const Plan& plan, const Schedule& schedule, WorkerId worker);

// One worker's list on its way from begin to end. The list is `schedule.lists[self]` of the plan's
// schedule or evaluation; both must outlive the walk. Nothing is allocated after construction but
// by the calls for reports.
//
// What can start stays able to start until it does: each kind of op keeps its list order, the order
// in which slots and buffers are taken too; slots and buffers that are given back make no op wait;
// and no value is used up twice. So all ways to walk a plan to its end, or to where it is stuck,
// run the same ops, and one walk tells whether any timing can stand still (docs/decisions/015).
class Walk {
 public:
  // Requires: `schedule` is plan.schedule or plan.evaluation, self is one of its lists. At most
  // `receives_ahead` receives of a lane are posted at once. `stored` is what is in the worker's
  // store before, each value once.
  Walk(const Plan& plan, const Schedule& schedule, WorkerId self,
       int32_t receives_ahead = kReceivesAhead, std::span<const Value> stored = {});
  // Indices into the list of ops that can start now, by lane, then place: of each lane the next
  // one, if all that it reads is in the store; of a receive lane all that have a buffer. Valid
  // until the next call that changes the walk. An op stays here until it is started.
  std::span<const int32_t> startable();
  // The op at `index` has started: its lane is taken. A lane of messages is free again at once:
  // receives are posted ahead, and a send does not wait for the one before to arrive. Requires: it
  // is startable.
  void start(int32_t index);
  // The op at `index` has ended: what it writes is here, what it frees is gone. Returns the freed
  // values, valid until the next call. Requires: it has started.
  std::span<const Value> finish(int32_t index);
  // True when every op has ended.
  bool done() const { return ended_ == static_cast<int32_t>(list_.size()); }
  // The lane heads that cannot start: what a hang report prints.
  std::vector<int32_t> waiting() const;
  // What the op at `index` reads and is not here: the reason for a wait.
  std::vector<Value> missing(int32_t index) const;
  // Everything in the store now.
  std::vector<Value> stored() const;
  // An op that writes what is there before, or another op of the list writes too (double work), or
  // -1.
  int32_t double_writer() const { return double_writer_; }
  // An op that uses up what another op of the list uses up too, or -1.
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
    int32_t buffers = 0;        // receive lanes: buffers there are
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
  int32_t stored_count_ = 0;         // values there before: the first ids
  std::vector<int32_t> recv_lane_;   // the receive lane whose buffer it lies in; -1 = none
  std::vector<int32_t> sends_;       // messages that leave it there and have not ended
  std::vector<uint8_t> freed_late_;  // an op has freed it, and a message is still to leave
  std::vector<int32_t> reader_first_, reader_;

  std::vector<Lane> lanes_;  // [0] = compute: its ops are compute_'s
  std::vector<int32_t> lane_ops_;

  std::vector<int32_t> offers_;  // startable ops of the other lanes
  std::vector<int32_t> startable_;
  std::vector<Value> freed_;
  int32_t ended_ = 0;
  int32_t double_writer_ = -1, double_reader_ = -1;
};

}  // namespace tenuto
