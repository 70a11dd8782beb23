#include "runtime/step_reductions.h"

#include <utility>

#include "base/text.h"
#include "runtime/keep_forever.h"
#include "runtime/tag.h"

namespace tenuto {

Result<bool> StepReductions::start(int32_t index) {
  started_[static_cast<size_t>(index)] = true;
  if (!is_under_way(index)) {
    if (Status begun = begin(index, false, brought_to(state_.op(index))); !begun.ok()) {
      return begun.error();
    }
  }
  return end_if_done(index);
}

Status StepReductions::begin_early(const ListTable::GrowingReduce& reduce, const Value& last) {
  std::vector<Contribution> brought = brought_to(state_.op(reduce.index));
  brought.push_back({last.stage, last.micro});
  if (Status begun = begin(reduce.index, true, brought); !begun.ok()) return begun;
  const Duration now = state_.machine.clock->now();
  for (const ElementRange& range : reduce.rest) {
    running_[static_cast<size_t>(reduce.index)]->grow(range, now);
    if (Status made = make_calls(reduce.index); !made.ok()) return made;
  }
  return ok();
}

Status StepReductions::grow(const ListTable::GrowingReduce& reduce, int32_t before, int32_t parts,
                            Duration at) {
  Reduction& reduction = *running_[static_cast<size_t>(reduce.index)];
  for (int32_t part = before; part < parts; ++part) {
    reduction.grow(reduce.growth.parts[static_cast<size_t>(part)], at);
    if (Status made = make_calls(reduce.index); !made.ok()) return made;
  }
  return ok();
}

Status StepReductions::grow_to_end(const ListTable::GrowingReduce& reduce, Duration at) {
  running_[static_cast<size_t>(reduce.index)]->grow_to_end(at);
  return make_calls(reduce.index);
}

// Begins the Reduce at `index`, to whose sum this worker brings `brought`.
Status StepReductions::begin(int32_t index, bool grows, const std::vector<Contribution>& brought) {
  StageCompute& compute = *state_.machine.compute;
  const Op& it = state_.op(index);
  const auto own = compute.bytes({ValueKind::Partial, it.part, it.stage, {}});
  if (!own.ok()) return own.error();
  const auto total = compute.allocate({ValueKind::Total, it.part, it.stage, {}});
  if (!total.ok()) return total.error();
  const size_t size = own.value().size();
  ReductionSettings settings;
  settings.element = compute.sum_elements();
  const size_t one = size_of(settings.element);
  const auto misplaced = [one](const void* memory) {
    return reinterpret_cast<uintptr_t>(memory) % one != 0;
  };
  if (size != total.value().size() || size % one != 0 || misplaced(own.value().data()) ||
      misplaced(total.value().data())) {
    return invalid(cat("its sum has ", size, " bytes and the memory of the total ",
                       total.value().size(), ": both must hold the same elements of ", one,
                       " bytes"));
  }
  std::vector<int64_t> scratch;
  if (!scratch_.empty()) {
    scratch = std::move(scratch_.back());
    scratch_.pop_back();
  }
  const Duration own_at = state_.pacer == nullptr ? Duration{} : state_.pacer->start(index);
  running_[static_cast<size_t>(index)] = std::make_unique<Reduction>(
      state_.table.collective(state_.schedule, index), state_.input.self, std::move(settings),
      ReductionTensor{own.value(), total.value(), own_at, tally_of(brought), grows},
      std::move(scratch));
  return make_calls(index);
}

Result<bool> StepReductions::take(int32_t index, int32_t call, const Done& done) {
  Reduction& reduction = *running_[static_cast<size_t>(index)];
  Duration at = done.finish.count() != 0 ? done.finish : state_.machine.clock->now();
  if (state_.pacer != nullptr) at = state_.pacer->part_end(call, at);
  reduction.finish(call - state_.table.first_call(index), at, done.tally);
  if (Status made = make_calls(index); !made.ok()) return made.error();
  return end_if_done(index);
}

WorkerId StepReductions::peer_of(int32_t call) const {
  const int32_t index = state_.table.reduce_of(call);
  const auto& reduction = running_[static_cast<size_t>(index)];
  return reduction == nullptr ? WorkerId{}
                              : reduction->peer_of(call - state_.table.first_call(index));
}

void StepReductions::keep_memory() { keep_forever(std::move(running_)); }

// Hands the reduction's next messages to the transport.
Status StepReductions::make_calls(int32_t index) {
  for (const ReductionCall& part : running_[static_cast<size_t>(index)]->startable()) {
    const int32_t call = state_.table.first_call(index) + part.index;
    const Status status = make_call(state_.op(index), call, part);
    if (status.ok()) continue;
    state_.calls.refuse(call);
    return status;
  }
  return ok();
}

// Ends the Reduce if the walk has started it and it needs no more messages. True = it has ended.
Result<bool> StepReductions::end_if_done(int32_t index) {
  const auto i = static_cast<size_t>(index);
  if (!started_[i] || !running_[i]->done()) return false;
  return finish(index);
}

Status StepReductions::make_call(const Op& reduce, int32_t call, const ReductionCall& part) {
  Transport& transport = *state_.machine.transport;
  const Tag tag = tag_of_move(reduce.group, reduce.part, part.round, part.chunk, state_.input.epoch,
                              state_.serial);
  if (!part.send) return transport.recv(part.peer, tag, part.target, state_.calls.begin(call));
  Stamp stamp = state_.pacer == nullptr ? Stamp{state_.machine.clock->now(), {}}
                                        : state_.pacer->send_part(call, part, tag);
  stamp.tally = part.tally;
  return transport.send(part.peer, tag, part.source, stamp, state_.calls.begin(call));
}

// The weight gradients of this worker that are in the sum which it brings to a reduction.
std::vector<Contribution> StepReductions::brought_to(const Op& reduce) const {
  std::vector<Contribution> brought;
  for (const Value& value : state_.walk.stored()) {
    if (value.kind != ValueKind::Partial || value.stage != reduce.stage) continue;
    brought.push_back({value.stage, value.micro});
  }
  return brought;
}

// Checks a total before a Step uses it: all weight gradients of the step must be in it, each once.
// The total is divided by the count of micro-batches, so nobody would notice a sum of other
// gradients.
Status StepReductions::audit(int32_t index) const {
  const Op& it = state_.op(index);
  std::vector<Contribution> wanted;
  for (const StageId stage : state_.schedule.groups[static_cast<size_t>(it.group.value)].stages) {
    for (int32_t m = 0; m < state_.schedule.micro_count; ++m) wanted.push_back({stage, {m}});
  }
  const uint64_t tally = tally_of(wanted);
  const uint64_t found = running_[static_cast<size_t>(index)]->tally_beside(tally);
  if (found == tally) return ok();
  return Error{Code::Corrupt, Reach::Worker, difference_of(wanted, found, brought_to(it))};
}

Result<bool> StepReductions::finish(int32_t index) {
  if (Status right = audit(index); !right.ok()) return right.error();
  auto& reduction = running_[static_cast<size_t>(index)];
  scratch_.push_back(reduction->take_scratch());
  OpRow& my = state_.row(index);
  if (state_.pacer == nullptr) {
    my.finish = state_.machine.clock->now();
  } else {
    my.finish = reduction->done_at();
    state_.pacer->reduced(my.finish);
  }
  reduction.reset();
  const Op& it = state_.op(index);
  const Value total{ValueKind::Total, it.part, it.stage, {}};
  if (Status status = state_.machine.compute->reduced(total); !status.ok()) return status.error();
  return true;
}

}  // namespace tenuto
