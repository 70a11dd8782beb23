// A schedule made ready for pricing: which op waits for which, as dense arrays, all from effect_of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/effect.h"
#include "ir/schedule.h"
#include "ir/stores.h"
#include "ir/walk.h"

namespace tenuto {

// The ops of a schedule under one numbering, lists one after the other, with their dependences.
// About 40 bytes an op beside the schedule itself, which must outlive the program.
class Program {
 public:
  // One lane of one worker, as Walk has them; ops of other lanes than Compute are chained by
  // `after_in_lane`.
  struct Lane {
    LaneKind kind = LaneKind::Compute;
    int32_t worker = 0;
    int32_t peer = -1;             // message lanes
    int32_t head = -1, tail = -1;  // numbers of the first and the last op
  };
  // "When this op has ended, `to` misses one thing less."
  struct Edge {
    int32_t to = -1, next = -1;
  };

  // Reads the ops of `schedule` for which `keep` is true (all if it is nullptr). `stores`: the
  // values stored before; nullptr = none.
  //
  // Errors: Invalid/Job  a message without its other end
  // Cost:   linear in the number of ops
  static Result<Program> make(const Schedule& schedule, bool (*keep)(const Op&) = nullptr,
                              const Stores* stores = nullptr);

  // Number of ops, kept or not.
  int32_t size() const { return first_.back(); }
  // Number of kept ops.
  int64_t kept() const { return kept_; }
  // The number of worker w's first op; one more at the end.
  std::span<const int32_t> first() const { return first_; }
  // All lanes; a worker's compute lane is lanes()[compute_lane(w)].
  std::span<const Lane> lanes() const { return lanes_; }
  // The lane of an op, -1 when it is not kept.
  int32_t lane(int32_t op) const { return nodes_[at(op)].lane; }
  // The worker of a kept op.
  int32_t worker(int32_t op) const { return lanes_[at(lane(op))].worker; }
  // The next kept op of its Send, Recv or Reduce lane, or -1.
  int32_t after_in_lane(int32_t op) const { return nodes_[at(op)].after_in_lane; }
  // What each op waits for: the number of values that it reads.
  std::span<const int32_t> missing() const { return missing_; }
  // The first edge out of an op, or -1.
  int32_t edge_of(int32_t op) const { return nodes_[at(op)].edge; }
  // All edges; follow `next`.
  const Edge& edge(int32_t index) const { return edges_[at(index)]; }
  // The other end of a Send or a Recv.
  int32_t partner(int32_t op) const { return nodes_[at(op)].partner; }
  // True for a receive that takes one of its lane's kReceivesAhead buffers. Values that stay to the
  // end of the step have buffers of their own: no op of a later step gives them back.
  bool takes_buffer(int32_t recv) const {
    return !lives_to_end(classes_[at(class_of(recv))].moved);
  }
  // The receive lane that has a buffer free again when this op has ended, or -1.
  int32_t release(int32_t op) const { return nodes_[at(op)].release; }
  // Ops of one kind, stage and moved value are of one class.
  int32_t class_of(int32_t op) const { return nodes_[at(op)].kind; }
  // One op of each class.
  std::span<const Op> classes() const { return classes_; }
  // The op itself.
  const Op& op(int32_t number) const {
    const int32_t self = worker(number);
    return schedule_->lists[at(self)][at(number - first_[at(self)])];
  }

 private:
  // Where `writer_` has the writers of one value that a class of ops reads: `made` and `received`
  // are the first indices of two ranges, -1 = none; a range has one entry a micro-batch.
  struct Place {
    int32_t made = -1, received = -1;
    bool freed = false;
  };
  struct Class {
    InlineList<Place, 4> reads;
    InlineList<int32_t, 4> writes;
    std::vector<Value> step_writes;  // values of the whole step, see step_values_
    bool step_reads = false;
    int32_t travels = -1;  // Send, Recv of a value of a micro-batch: its range of first_end_
  };
  // What is known of one op; in one struct, because code that reads one field reads most of them.
  struct Node {
    int32_t lane = -1, after_in_lane = -1, edge = -1, partner = -1, release = -1, kind = -1;
  };
  // A value of the step and the op of the present worker that writes it.
  struct Writer {
    Value value;
    int32_t op = -1;
  };

  explicit Program(const Schedule& schedule) : schedule_(&schedule) {}

  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  Status build(bool (*keep)(const Op&), const Stores* stores);
  void allocate_ops();
  int32_t find_class(const Op& op);
  Class describe(const Op& op) const;
  int32_t run_of(const Value& value, bool received) const;
  void note_writes(int32_t worker, bool (*keep)(const Op&));
  void note_reads(int32_t worker);
  void read_whole(const Op& op, int32_t number);
  void read(const Class& kind, const Op& op, int32_t number);
  bool is_stored(const Value& value) const;
  bool is_stored(const Op& op, size_t read) const;
  int32_t find_lane(int32_t worker, const Op& op);
  void join(int32_t writer, int32_t reader, bool freed);
  void meet(int32_t run, int32_t number);
  void couple(int32_t one, int32_t other);
  Status pair();
  bool pair_step_messages();

  const Schedule* schedule_;
  int32_t micro_first_ = 0;
  int64_t kept_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> first_, missing_;
  std::vector<Edge> edges_;
  std::vector<Lane> lanes_;
  std::vector<Op> classes_;

  // Only while it is built.
  std::vector<Class> kinds_;
  std::vector<int32_t> class_index_, writer_;
  std::vector<int32_t> first_end_;  // of each sent value: the end that was noted first
  int64_t messages_ = 0, paired_ = 0;
  std::vector<Writer> step_values_;
  std::vector<Value> stored_;  // of the present worker, sorted
  std::vector<int32_t> step_messages_;
  size_t lanes_begin_ = 0;  // of the present worker
  bool all_kept_ = true;
};

}  // namespace tenuto
