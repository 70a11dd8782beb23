#include "runtime/step_run.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ir/effect.h"
#include "ir/version.h"
#include "runtime/step_failure.h"
#include "runtime/step_values.h"
#include "runtime/tag.h"

namespace tenuto {

StepRun::StepRun(const StepInput& input, const Machine& machine, const Schedule& schedule,
                 const ListTable& table, std::vector<std::vector<int64_t>>& scratch, RunName name)
    : state_(input, machine, schedule, table, name.base, name.serial),
      machine_(machine),
      validated_(name.validated),
      reductions_(state_, scratch) {
  heads_.reserve(state_.list.size());
  events_.reserve(state_.list.size());
  for (size_t i = 0; i < state_.list.size(); ++i) {
    const OpKind kind = state_.list[i].kind;
    const bool halved = input.plan->split_backward;  // else its weight part takes no time
    if (kind == OpKind::BackwardInput || (kind == OpKind::BackwardWeight && halved)) {
      last_backward_ = static_cast<int32_t>(i);
    }
  }
  validations_ = std::count_if(state_.list.begin(), state_.list.end(),
                               [](const Op& op) { return op.kind == OpKind::Validate; });
}

Result<std::vector<Event>> StepRun::run() {
  if (machine_.pacer != nullptr) {
    auto pacer = machine_.pacer->pace(state_);
    if (!pacer.ok()) return pacer.error();
    state_.pacer = std::move(pacer).value();
  }
  if (Status status = read_standing(); !status.ok()) return status.error();
  if (Status status = begin(); !status.ok()) {
    return Error{status.error().code, status.error().reach,
                 cat(place_of(state_), ": it cannot begin: ", status.error().message)};
  }
  Result<std::vector<Event>> events = loop();
  if (!events.ok()) return retire(events.error());
  end_step(state_);
  return events;
}

Status StepRun::begin() {
  const Result<Duration> begun = begin_step(state_);
  if (!begun.ok()) return begun.error();
  return state_.pacer == nullptr ? ok() : state_.pacer->begin(begun.value());
}

Result<std::vector<Event>> StepRun::loop() {
  deadline_ = machine_.clock->now() + state_.input.limits.silence;
  while (true) {
    if (Status status = start_ready(); !status.ok()) return status.error();
    // A note may still be under way when all ops have ended.
    if (state_.walk.done() && state_.calls.count() == 0) return std::move(events_);
    const Result<Done> report = wait();
    if (report.ok()) {
      if (Status status = take(report.value()); !status.ok()) return status.error();
      continue;
    }
    const Duration wake = state_.pacer == nullptr ? Duration{} : state_.pacer->wake_at();
    if (wake.count() > 0 && machine_.clock->now() >= wake) continue;
    if (report.error().code != Code::Timeout) return report.error();
    return silence_of(state_, reductions_, heads_);
  }
}

// Starts all ops that the walk, the coordinator and the pacer let start.
Status StepRun::start_ready() {
  for (bool again = true; again;) {
    if (state_.pacer != nullptr) {
      state_.pacer->begin_round();
      complete_paced();
    }
    const size_t ended = ended_;
    bool refused = false;
    const std::span<const int32_t> startable = state_.walk.startable();
    heads_.assign(startable.begin(), startable.end());
    for (const int32_t index : heads_) {
      if (!may_start(index)) {
        refused = true;
        continue;
      }
      if (Status status = start(index); !status.ok()) return status;
    }
    again = ended_ != ended;  // a reduction without messages ends at once
    if (state_.pacer == nullptr) continue;
    if (Status status = start_paced(!again && !refused, again); !status.ok()) return status;
  }
  return ok();
}

bool StepRun::may_start(int32_t index) {
  if (is_step(state_.op(index).kind)) {
    return may_update(Iteration{state_.input.step}, Version{standing_.committed});
  }
  return state_.pacer == nullptr || state_.pacer->may_start(index);
}

// Starts the ops that the pacer names. Sets `again` if more may be able to start then.
Status StepRun::start_paced(bool idle, bool& again) {
  const size_t ended = ended_;
  while (const auto index = state_.pacer->next_start()) {
    const Op& it = state_.op(*index);
    const bool posted = it.kind == OpKind::Recv;
    const Status status = posted ? start_note(*index) : start(*index);
    if (!status.ok()) return posted ? explain(state_, *index, status.error(), it.peer) : status;
    complete_paced();
  }
  again = again || ended_ != ended || (idle && state_.pacer->move_on());
  return ok();
}

void StepRun::complete_paced() {
  while (const auto index = state_.pacer->next_end()) complete(*index);
}

Status StepRun::start(int32_t index) {
  state_.walk.start(index);
  if (validated_ && is_validation(state_.op(index))) {  // was run ahead of the step
    state_.walk.finish(index);
    state_.row(index).done = true;
    ++ended_;
    return ok();
  }
  state_.row(index).start = machine_.clock->now();
  const Status status = start_call(index);
  if (status.ok()) return status;
  state_.calls.refuse(index);
  return explain(state_, index, status.error(), state_.op(index).peer);
}

Status StepRun::start_call(int32_t index) {
  switch (state_.op(index).kind) {
    case OpKind::Send:
      return start_send(index);
    case OpKind::Recv:
      return start_receive(index);
    case OpKind::Reduce: {
      const Result<bool> ended = reductions_.start(index);
      if (!ended.ok()) return ended.error();
      if (ended.value()) complete(index);
      return ok();
    }
    default:
      return start_compute(index);
  }
}

// If the op at `index` is the last one that adds to a sum which grows, begins the all-reduce of
// that sum.
Status StepRun::begin_early(int32_t index) {
  const int32_t adder = state_.table.adder(index);
  if (adder < 0) return ok();
  for (const ListTable::GrowingReduce& reduce : state_.table.growing()) {
    if (!state_.walk.waits_only_for(reduce.index, adder)) continue;
    const Op& it = state_.op(adder);
    const Value last{ValueKind::Partial, -1, it.stage, it.micro};
    if (Status begun = reductions_.begin_early(reduce, last); !begun.ok()) return begun;
    machine_.growth->report_growth(it.stage);
    growing_ = Growing{index, &reduce, 0};
    return ok();
  }
  return ok();
}

Status StepRun::start_compute(int32_t index) {
  if (Status begun = begin_early(index); !begun.ok()) return begun;
  ends_soon_ = index == last_backward_;
  const Duration at = state_.pacer == nullptr ? Duration{} : state_.pacer->start(index);
  return machine_.compute->start(state_.op(index), at, state_.calls.begin(index));
}

Status StepRun::start_send(int32_t index) {
  const Op& it = state_.op(index);
  const Result<std::span<const std::byte>> bytes = machine_.compute->bytes(moved_value(it));
  if (!bytes.ok()) return bytes.error();
  OpRow& my = state_.row(index);
  my.bytes = static_cast<int64_t>(bytes.value().size());
  Stamp stamp{my.start, {}};
  const Tag tag = tag_of(moved_value(it), state_.input.epoch, state_.serial);
  if (state_.pacer != nullptr) {
    stamp = state_.pacer->send(index, tag);
    if (Status status = start_note(index); !status.ok()) return status;
  }
  return machine_.transport->send(it.peer, tag, bytes.value(), stamp, state_.calls.begin(index));
}

Status StepRun::start_receive(int32_t index) {
  const Op& it = state_.op(index);
  const Result<std::span<std::byte>> buffer = machine_.compute->allocate(moved_value(it));
  if (!buffer.ok()) return buffer.error();
  state_.row(index).bytes = static_cast<int64_t>(buffer.value().size());
  if (state_.pacer != nullptr) state_.pacer->start(index);
  return machine_.transport->recv(it.peer,
                                  tag_of(moved_value(it), state_.input.epoch, state_.serial),
                                  buffer.value(), state_.calls.begin(index));
}

// Starts the call of a message's note, if it has one: the message's receiver sends it to the
// sender.
Status StepRun::start_note(int32_t index) {
  const std::span<std::byte> note = state_.pacer->note(index);
  if (note.empty()) return ok();
  const Op& it = state_.op(index);
  const Tag tag = tag_of_note(moved_value(it), state_.input.epoch, state_.serial);
  const int32_t call = state_.first_note() + index;
  const Ticket ticket = state_.calls.begin(call);
  const Status status = it.kind == OpKind::Send
                            ? machine_.transport->recv(it.peer, tag, note, ticket)
                            : machine_.transport->send(it.peer, tag, note, Stamp{}, ticket);
  if (!status.ok()) state_.calls.refuse(call);
  return status;
}

// The next report, or Timeout at the deadline or when the pacer wants to look again.
Result<Done> StepRun::wait() {
  if (std::exchange(ends_soon_, false)) state_.observer.ends_soon();
  Duration until = deadline_;
  if (state_.pacer != nullptr && state_.pacer->wake_at().count() > 0) {
    until = std::min(until, state_.pacer->wake_at());
  }
  return machine_.mailbox->wait(std::max(until - machine_.clock->now(), Duration(0)));
}

Status StepRun::take(const Done& done) {
  if (done.ticket == kNoTicket) {
    if (done.peer.value < 0) return read_standing();
    return take_lost(done.peer, done.status.ok()
                                    ? Error{Code::Disconnected, Reach::Worker, "no reason is known"}
                                    : done.status.error());
  }
  if (done.grown > 0) return take_growth(done);
  const auto call = state_.calls.end(done.ticket);
  if (!call) {  // not of this run
    state_.observer.other(done);
    return ok();
  }
  deadline_ = machine_.clock->now() + state_.input.limits.silence;
  if (*call < static_cast<int32_t>(state_.list.size())) return take_op(*call, done);
  if (*call >= state_.first_note()) return take_note(*call - state_.first_note(), done);
  return take_message(*call, done);
}

// Parts of a sum are complete while their op goes on.
Status StepRun::take_growth(const Done& done) {
  if (!growing_ || state_.calls.find(done.ticket) != growing_->index) return ok();
  deadline_ = machine_.clock->now() + state_.input.limits.silence;
  const int32_t before = std::exchange(growing_->parts, done.grown);
  const Status grown =
      reductions_.grow(*growing_->reduce, before, done.grown, machine_.clock->now());
  return grown.ok() ? ok() : explain(state_, growing_->reduce->index, grown.error(), {});
}

Status StepRun::take_op(int32_t index, const Done& done) {
  const Op& it = state_.op(index);
  if (!done.status.ok()) return fail(index, it.peer, done.status.error());
  OpRow& my = state_.row(index);
  const Duration now = done.finish.count() != 0 ? done.finish : machine_.clock->now();
  if (growing_ && growing_->index == index) {
    const ListTable::GrowingReduce& reduce = *std::exchange(growing_, {})->reduce;
    const Status grown = reductions_.grow_to_end(reduce, now);
    if (!grown.ok()) return explain(state_, reduce.index, grown.error(), {});
  }
  if (it.kind == OpKind::Recv) my.sent = done.sent;
  if (!is_message(it) && done.start.count() != 0) my.start = done.start;
  if (state_.pacer == nullptr) {
    my.finish = now;
  } else if (!state_.pacer->ended(index, now, done)) {
    return ok();
  }
  complete(index);
  return ok();
}

Status StepRun::take_note(int32_t index, const Done& done) {
  if (!done.status.ok()) return fail(index, state_.op(index).peer, done.status.error());
  state_.pacer->take_note(index);
  return ok();
}

Status StepRun::take_message(int32_t call, const Done& done) {
  const int32_t index = state_.table.reduce_of(call);
  if (!done.status.ok()) return fail(index, reductions_.peer_of(call), done.status.error());
  const Result<bool> ended = reductions_.take(index, call, done);
  if (!ended.ok()) return explain(state_, index, ended.error(), {});
  if (ended.value()) complete(index);
  return ok();
}

Status StepRun::take_lost(WorkerId peer, const Error& error) {
  state_.note_lost(peer, error);
  return loss_of(state_, peer, error);
}

Status StepRun::read_standing() {
  standing_ = state_.observer.standing(state_.input.step);
  if (!standing_.abandon) return ok();
  return Error{Code::Cancelled, Reach::Call,
               cat(place_of(state_), ": the coordinator has asked to abandon the step")};
}

// The op has ended: moves the walk on, frees values, and notes the event.
void StepRun::complete(int32_t index) {
  const Op& it = state_.op(index);
  for (const Value& value : state_.walk.finish(index)) free_value(state_, value, it);
  OpRow& my = state_.row(index);
  my.done = true;
  Event event;
  event.worker = state_.input.self;
  event.step = state_.input.step;
  event.op = it;
  event.start = my.start;
  event.finish = my.finish;
  event.moved = {my.bytes};
  event.sent = my.sent;
  events_.push_back(event);
  ++ended_;
  state_.observer.ended(static_cast<int64_t>(events_.size()));
  if (it.kind == OpKind::Validate && --validations_ == 0) state_.observer.validated();
}

// A call has failed; if its peer is lost, that is reported too.
Error StepRun::fail(int32_t index, WorkerId peer, const Error& error) {
  if (error.code == Code::Disconnected && peer.value >= 0) state_.note_lost(peer, error);
  return explain(state_, index, error, peer);
}

// Leaves nothing under way. A compute op that ends meanwhile counts: its results are there, also
// those in a sum.
Error StepRun::retire(Error error) {
  const std::vector<int32_t> computed = end_calls(state_, reductions_, error);
  if (state_.input.recovery.holding != nullptr) {
    for (const int32_t index : computed) complete(index);
  }
  end_step(state_);
  return error;
}

}  // namespace tenuto
