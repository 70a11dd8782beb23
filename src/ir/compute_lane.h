// The compute lane of one worker: which op it takes next, by the rule of ir/dispatch.h. The walk
// (check, runtime) and the price both call it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/dispatch.h"

namespace tenuto {

// True for ops of the compute lane; Send, Recv and Reduce have lanes of their own.
bool is_compute(OpKind kind);

// The progress of a worker's compute ops. The lane tracks which ops have begun; the caller tracks
// which inputs are present.
class ComputeLane {
 public:
  // Takes the compute ops of `list`; with `keep`, only those for which it returns true. The list
  // must outlive the lane.
  ComputeLane(std::span<const Op> list, Dispatch dispatch, Limit limit,
              bool (*keep)(const Op&) = nullptr);
  // The op (its index in the list) to begin next; -1 when an op is running or none can begin.
  // missing[i] = how many values that op i reads are not present.
  //
  // Validate runs first, as soon as its clip decision is present, wherever it is in the list. Then,
  // Listed: the next op of the list. Ready: the first op whose inputs are all present, in the order
  // update, backward, forward, weight gradient, each kind in list order; but no backward during the
  // warm-up, and no forward that would exceed a limit. A Step waits until every forward and
  // backward of the list has begun, because these need the parameters from before the step. Its
  // inputs do not ensure that: in the rest of an interrupted step they may be present from the
  // start.
  int32_t candidate(const int32_t* missing) const {
    if (busy_) return -1;
    if (const int32_t judged = head(Judgement, missing); judged >= 0) return judged;
    return dispatch_ == Dispatch::Ready ? ready_candidate(missing) : head(Listed, missing);
  }
  // The op at `index` begins. Requires: it is the candidate.
  void begin(int32_t index) {
    const OpKind kind = list_[static_cast<size_t>(index)].kind;
    busy_ = true;
    ++runs_[queue_of(kind)].next;
    if (kind == OpKind::Forward) {
      ++holder_.micros.whole;
      ++forwards_begun_;
    }
  }
  // The op that runs has ended; `kind` is its kind.
  void end(OpKind kind) {
    busy_ = false;
    ++ended_;
    if (kind == OpKind::BackwardInput) --holder_.micros.whole, ++holder_.micros.late;
    if (kind == OpKind::BackwardWeight) --holder_.micros.late;
  }
  // Appends the ops that the lane would take next if their inputs were there.
  void heads(std::vector<int32_t>& into) const;
  // Counts micro-batches that the worker already holds before the list begins.
  void hold(HeldMicros more) {
    holder_.micros.whole += more.whole, holder_.micros.late += more.late;
  }
  // True while an op runs.
  bool busy() const { return busy_; }
  // True when every op has ended.
  bool done() const { return static_cast<size_t>(ended_) == ops_.size(); }
  // Goes back to the start of the list. Requires: done().
  void restart();
  // Micro-batches (of all the worker's stages) between the start of a forward and the end of its
  // weight gradient.
  int32_t held() const { return holder_.micros.count(); }

 private:
  // The queues, highest priority first. Under Dispatch::Listed, Validate is in the queue Judgement
  // and every other op in the queue Listed.
  enum Queue : uint8_t { Judgement, Update, Backward, Ahead, Weight, kQueueCount };
  static constexpr Queue Listed = Update;
  struct Run {
    int32_t first = 0, next = 0, end = 0;  // into ops_
  };

  // What the worker holds, and may hold.
  struct Holder {
    HeldLimit limit;
    HeldMicros micros;
    HeldMicros held() const { return micros; }
  };

  // The head of a queue; -1 when it cannot begin or there is none.
  int32_t head(Queue queue, const int32_t* missing) const {
    const Run& run = runs_[queue];
    if (run.next == run.end) return -1;
    const int32_t index = ops_[static_cast<size_t>(run.next)];
    return missing[index] == 0 ? index : -1;
  }
  int32_t ready_candidate(const int32_t* missing) const;
  // True while a forward or a backward has not begun.
  bool owes_outputs() const {
    return runs_[Backward].next != runs_[Backward].end || runs_[Ahead].next != runs_[Ahead].end;
  }
  Queue queue_of(OpKind kind) const;

  std::span<const Op> list_;
  Dispatch dispatch_;
  Holder holder_;
  std::vector<int32_t> ops_;  // indices into the list; under Ready queue by queue
  std::array<Run, kQueueCount> runs_;
  int32_t warm_up_ = 0;  // forwards before the first backward
  int32_t forwards_begun_ = 0;
  int32_t ended_ = 0;
  bool busy_ = false;
};

}  // namespace tenuto
