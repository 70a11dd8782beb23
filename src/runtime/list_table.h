// Tables that the loop of a step looks up instead of computing: made once per list, kept as long as
// the plan stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "runtime/growth.h"

namespace tenuto {

// Tables of one worker's list. Everything is indexed by place in the list.
class ListTable {
 public:
  // Makes the tables. `growth` is the device's, which holds the stages of the list; null: no sum
  // grows.
  //
  // Errors: Invalid/Job  the worker has no list, or an op names a peer, group, collective, chunk,
  //                      stage or micro-batch that the plan does not have or a message cannot name
  static Result<ListTable> make(const Plan& plan, const Schedule& schedule, WorkerId self,
                                const GradientGrowth* growth = nullptr);

  // True when make() with these arguments would give the same tables.
  bool fits(const Plan& plan, const Schedule& schedule, WorkerId self,
            const GradientGrowth* growth) const;

  // The ops that write what op `index` reads: it starts when the last of them has ended.
  std::span<const int32_t> producers(int32_t index) const {
    const auto i = static_cast<size_t>(index);
    return {producers_.data() + producer_begin_[i], producers_.data() + producer_begin_[i + 1]};
  }
  // The collective of the Reduce at `index`.
  const Collective& collective(const Schedule& schedule, int32_t index) const;
  // A Reduce that may begin while its sum grows.
  struct GrowingReduce {
    int32_t index = -1;  // in the list
    SumGrowth growth;
    std::vector<ElementRange> rest;  // what does not grow
    Collective collective;
  };
  // All of them, in the order of the list.
  std::span<const GrowingReduce> growing() const { return growing_; }
  // The op that writes the weight gradient which the op at `index` adds to a sum: itself, or, if
  // the backward is not split, the BackwardWeight after the BackwardInput. -1: the op adds to no
  // sum that grows.
  int32_t adder(int32_t index) const { return adder_[static_cast<size_t>(index)]; }
  // The call number of the first message of the Reduce at `index`. Call numbers below the list's
  // size are ops; those in [list size, call_count) are messages of reductions.
  int32_t first_call(int32_t index) const { return first_call_[static_cast<size_t>(index)]; }
  // The Reduce to which call `call` belongs; `call` is at least the list's size.
  int32_t reduce_of(int32_t call) const;
  // Ops of the list.
  size_t op_count() const { return list_.size(); }
  // Calls of a step at most: one per op and one per message of each reduction.
  int32_t call_count() const { return call_count_; }

 private:
  Status check_references(const Plan& plan, const Schedule& schedule, WorkerId self) const;
  void find_producers(int32_t stage_count);
  void number_calls(const Schedule& schedule, WorkerId self);
  std::vector<SumGrowth> growth_of_list(const GradientGrowth* growth) const;
  void find_growing(const Schedule& schedule, const GradientGrowth* growth);
  void find_adders();

  std::vector<Op> list_;
  WorkerId self_;
  int32_t stage_count_ = 0;
  bool split_ = false;             // the backward
  std::vector<SumGrowth> growth_;  // of each Reduce, as the device says
  std::vector<GrowingReduce> growing_;
  std::vector<int32_t> adder_;
  std::vector<int32_t> producer_begin_, producers_;
  std::vector<int32_t> first_call_;
  std::vector<int32_t> reduces_;  // places of the Reduce ops
  std::vector<Group> groups_;
  std::vector<Collective> collectives_;
  int32_t call_count_ = 0;
};

}  // namespace tenuto
