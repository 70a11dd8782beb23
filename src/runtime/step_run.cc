#include "runtime/step_run.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/contains.h"
#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "runtime/hang_report.h"
#include "runtime/keep_forever.h"

namespace tenuto {

namespace {

// See RestPart::unsummed.
std::vector<Value> gradients_alone(std::span<const Op> list) {
  std::set<std::pair<StageId, MicroId>> weights;
  for (const Op& op : list) {
    if (op.kind == OpKind::BackwardWeight) weights.emplace(op.stage, op.micro);
  }
  std::vector<Value> alone;
  for (const Op& op : list) {
    if (op.kind != OpKind::BackwardInput || weights.contains({op.stage, op.micro})) continue;
    alone.push_back({ValueKind::Gradient, -1, op.stage, op.micro});
  }
  return alone;
}

bool feeds_compute(ValueKind kind) {
  return kind == ValueKind::Activation || kind == ValueKind::Gradient;
}

}  // namespace

StepRun::StepRun(const StepInput& input, const Machine& machine, const ListTable& table,
                 const Schedule& schedule, const std::vector<int32_t>* order, uint64_t base,
                 std::vector<std::vector<int64_t>>& scratch, RunName name)
    : input_(input),
      machine_(machine),
      table_(table),
      schedule_(schedule),
      base_(base),
      name_(name),
      scratch_(scratch),
      walk_(*input.plan, schedule, input.self, kReceivesAhead,
            input.recovery.rest == nullptr ? std::span<const Value>()
                                           : std::span(input.recovery.rest->stored)),
      list_(walk_.list()),
      rows_(list_.size()),
      calls_(static_cast<size_t>(table.call_count()) + (order == nullptr ? 0 : list_.size()),
             Call::Idle),
      reductions_(list_.size()),
      order_(order),
      first_note_(table.call_count()),
      observer_(input.observer == nullptr ? nobody_ : *input.observer),
      choosing_(machine.links != nullptr && input.plan->dispatch == Dispatch::Ready) {
  heads_.reserve(list_.size());
  events_.reserve(list_.size());
  if (machine.links != nullptr) left_.resize(calls_.size());
  validations_ = std::count_if(list_.begin(), list_.end(),
                               [](const Op& op) { return op.kind == OpKind::Validate; });
}

Result<std::vector<Event>> StepRun::run() {
  if (Status status = read_standing(); !status.ok()) return status.error();
  if (Status status = begin(); !status.ok()) {
    return Error{status.error().code, status.error().reach,
                 cat(place(), ": it cannot begin: ", status.error().message)};
  }
  if (order_ != nullptr) {
    queue_ =
        std::make_unique<QueuedMessages>(list_, *order_, input_.plan->split_backward, begun_at_);
  }
  deadline_ = machine_.clock->now() + input_.limits.silence;
  while (true) {
    if (Status status = start_ready(); !status.ok()) return retire(status.error());
    if (walk_.done() && open_notes_ == 0) {
      close_holding();
      return std::move(events_);
    }
    Result<Done> report = wait();
    if (!report.ok()) {
      if (wake_at_.count() > 0 && machine_.clock->now() >= wake_at_) continue;
      if (report.error().code == Code::Timeout) return retire(silence());
      return retire(report.error());
    }
    if (Status status = take(report.value()); !status.ok()) return retire(status.error());
  }
}

Status StepRun::begin() {
  Holding* holding = input_.recovery.holding;
  if (input_.recovery.rest == nullptr) {
    if (holding != nullptr) holding->begin(input_.step, input_.epoch);
    const Result<Duration> begun = machine_.compute->begin(input_.step);
    if (!begun.ok()) return begun.error();
    begun_at_ = begun.value();
    return ok();
  }
  if (order_ != nullptr) return invalid("messages through the device's queue begin anew");
  if (holding != nullptr) {
    holding->resume(input_.step, input_.recovery.attempt, input_.recovery.rest->stored,
                    input_.recovery.rest->back);
  }
  RestPart rest = *input_.recovery.rest;
  rest.unsummed = unsummed_ = gradients_alone(list_);
  const Result<Duration> resumed = machine_.compute->resume(input_.step, rest);
  if (!resumed.ok()) return resumed.error();
  resumed_at_ = resumed.value();
  return ok();
}

Result<Done> StepRun::wait() {
  const Duration now = machine_.clock->now();
  Duration limit = std::max(deadline_ - now, Duration(0));
  if (wake_at_.count() > 0) limit = std::min(limit, std::max(wake_at_ - now, Duration(0)));
  return machine_.mailbox->wait(limit);
}

Status StepRun::read_standing() {
  standing_ = observer_.standing(input_.step);
  if (!standing_.abandon) return ok();
  return Error{Code::Cancelled, Reach::Call,
               cat(place(), ": the coordinator has asked to abandon the step")};
}

// Starts all that the walk and the circumstances allow.
Status StepRun::start_ready() {
  for (bool again = true; again;) {
    again = false;
    wake_at_ = {};
    if (choosing_) release_held();
    const std::span<const int32_t> startable = walk_.startable();
    heads_.assign(startable.begin(), startable.end());
    bool compute_waits = false;
    for (const int32_t index : heads_) {
      if (queued(index) && op(index).kind != OpKind::Recv) {  // starts when the queue says so
        queue_->offer(index, inputs_at(index));
        continue;
      }
      if (!may_start(index)) {
        compute_waits = true;
        continue;
      }
      const size_t ended = ended_;
      if (Status status = start(index); !status.ok()) return status;
      again = again || ended_ != ended;  // a reduction without messages ends at once
    }
    if (choosing_ && !again && !computing_ && !compute_waits) again = look_ahead();
    if (queue_ == nullptr) continue;
    const Result<bool> ended = start_queued();
    if (!ended.ok()) return ended.error();
    again = again || ended.value();
  }
  return ok();
}

// Starts what the device's queue lets start. True when an op has ended with it.
Result<bool> StepRun::start_queued() {
  const size_t before = ended_;
  while (const auto item = queue_->next()) {
    if (Status status = start_item(*item); !status.ok()) return status.error();
  }
  return ended_ != before;
}

// A receive is posted ahead of need, whatever the queue says: here only its virtual start becomes
// known, and is sent to its sender.
Status StepRun::start_item(const DeviceQueue::Item& item) {
  if (op(item.index).kind != OpKind::Recv) return start(item.index);
  queue_->note_value(item.index) = item.start.count();
  if (Status status = exchange_note(item.index); !status.ok()) {
    return explain(item.index, status.error(), op(item.index).peer);
  }
  settle(item.index);
  return ok();
}

// The note of a message: from its receiver to its sender.
Status StepRun::exchange_note(int32_t index) {
  const Op& it = op(index);
  const Tag tag = tag_of_note(moved_value(it), input_.epoch, name_.serial);
  const int32_t call = first_note_ + index;
  const Ticket ticket = begin_call(call);
  ++open_notes_;
  const Status status =
      it.kind == OpKind::Send
          ? machine_.transport->recv(it.peer, tag, queue_->note(index), ticket)
          : machine_.transport->send(it.peer, tag, queue_->note(index), Stamp{}, ticket);
  if (status.ok()) return status;
  calls_[static_cast<size_t>(call)] = Call::Over;  // refused: no report will come
  --under_way_;
  --open_notes_;
  return status;
}

Status StepRun::take_note(int32_t index, const Done& done) {
  --open_notes_;
  const Op& it = op(index);
  if (!done.status.ok()) return fail(index, it.peer, done.status.error());
  if (it.kind == OpKind::Recv) return ok();
  queue_->set_theirs(index, Duration(queue_->note_value(index)));
  settle(index);
  return ok();
}

// Ends a message of which both ends are known and whose bytes are here. True when it has ended.
bool StepRun::settle(int32_t index) {
  const auto end = queue_->settle(index);
  if (!end) return false;
  row(index).start = queue_->start_of(index);
  row(index).finish = *end;
  complete(index);
  return true;
}

bool StepRun::may_start(int32_t index) {
  const Op& it = op(index);
  if (is_step(it.kind)) return standing_.committed >= input_.step;
  return !choosing_ || may_choose(it);
}

// On the virtual clock under ready dispatch the choice belongs to a virtual moment, but a message
// that is here on the virtual clock may still be on its real way. So a choice that such a message
// could change is put off for the patience of the links; the op's virtual start does not suffer.
bool StepRun::may_choose(const Op& it) {
  const bool changeable = it.kind == OpKind::Forward || it.kind == OpKind::BackwardWeight;
  if (!changeable || awaited_ == 0) return true;
  const Duration until = choice_at_ + machine_.links->patience();
  if (machine_.clock->now() >= until) return true;
  wake_at_ = until;
  return false;
}

// Nothing can be computed at the moment of the choice: moves it on to the next virtual arrival.
// True when it has moved.
bool StepRun::look_ahead() {
  if (held_.empty()) return false;
  const Duration next{held_.top().first};
  const Duration until = next + machine_.links->patience();
  if (awaited_ > 0 && machine_.clock->now() < until) {
    wake_at_ = until;
    return false;
  }
  choice_at_ = next;
  return true;
}

// Hands over the receives that are here on the virtual clock at the moment of the choice.
void StepRun::release_held() {
  while (!held_.empty() && held_.top().first <= choice_at_.count()) {
    const int32_t index = held_.top().second;
    held_.pop();
    complete(index);
  }
}

Ticket StepRun::begin_call(int32_t call) {
  calls_[static_cast<size_t>(call)] = Call::UnderWay;
  ++under_way_;
  return Ticket{base_ + static_cast<uint64_t>(call)};
}

Status StepRun::start(int32_t index) {
  walk_.start(index);
  if (name_.validated && is_validation(op(index))) {
    pass_over(index);
    return ok();
  }
  row(index).start = machine_.clock->now();
  Status status = ok();
  switch (op(index).kind) {
    case OpKind::Send:
      status = start_send(index);
      break;
    case OpKind::Recv:
      status = start_receive(index);
      break;
    case OpKind::Reduce:
      status = start_reduce(index);
      break;
    default:
      status = start_compute(index);
      break;
  }
  if (status.ok()) return status;
  if (calls_[static_cast<size_t>(index)] == Call::UnderWay) {  // refused: no report will come
    calls_[static_cast<size_t>(index)] = Call::Over;
    --under_way_;
  }
  return explain(index, status.error(), op(index).peer);
}

Duration StepRun::inputs_at(int32_t index) const {
  Duration at = resumed_at_;
  for (const int32_t producer : table_.producers(index)) at = std::max(at, row(producer).finish);
  return at;
}

Status StepRun::start_compute(int32_t index) {
  computing_ = true;
  const Duration at = queued(index) ? queue_->start_of(index) : inputs_at(index);
  return machine_.compute->start(op(index), at, begin_call(index));
}

Status StepRun::start_send(int32_t index) {
  const Op& it = op(index);
  const Result<std::span<const std::byte>> bytes = machine_.compute->bytes(moved_value(it));
  if (!bytes.ok()) return bytes.error();
  Row& my = row(index);
  my.bytes = static_cast<int64_t>(bytes.value().size());
  Stamp stamp{my.start, {}};
  const Tag tag = tag_of(moved_value(it), input_.epoch, name_.serial);
  if (queued(index)) {
    const Duration way = machine_.links->way(it.peer, {my.bytes}, tag);
    const Duration sent = queue_->start_of(index);
    queue_->set_way(index, way);
    if (Status status = exchange_note(index); !status.ok()) return status;
    stamp = {sent, sent + way};
  } else if (machine_.links != nullptr) {
    const Passage passage = machine_.links->send(it.peer, {my.bytes}, inputs_at(index), tag);
    my.start = passage.start;
    my.finish = passage.finish;
    stamp = {passage.start, passage.arrival};
  }
  return machine_.transport->send(it.peer, tag, bytes.value(), stamp, begin_call(index));
}

Status StepRun::start_receive(int32_t index) {
  const Op& it = op(index);
  const Result<std::span<std::byte>> memory = machine_.compute->allocate(moved_value(it));
  if (!memory.ok()) return memory.error();
  row(index).bytes = static_cast<int64_t>(memory.value().size());
  awaited_ += feeds_compute(it.moved);
  return machine_.transport->recv(it.peer, tag_of(moved_value(it), input_.epoch, name_.serial),
                                  memory.value(), begin_call(index));
}

Status StepRun::start_reduce(int32_t index) {
  const Op& it = op(index);
  const auto own = machine_.compute->bytes({ValueKind::Partial, it.part, it.stage, {}});
  if (!own.ok()) return own.error();
  const auto total = machine_.compute->allocate({ValueKind::Total, it.part, it.stage, {}});
  if (!total.ok()) return total.error();
  const size_t size = own.value().size();
  ReductionSettings settings;
  settings.element = machine_.compute->sum_elements();
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
  Duration own_at = inputs_at(index);
  if (machine_.links != nullptr) {
    own_at = std::max(own_at, reduced_at_);  // the lane takes one reduction after the other
    row(index).start = own_at;
  }
  reductions_[static_cast<size_t>(index)] = std::make_unique<Reduction>(
      table_.collective(schedule_, index), input_.self, std::move(settings), own.value(),
      total.value(), own_at, std::move(scratch), tally_of(brought_to(it)));
  return make_calls(index, *reductions_[static_cast<size_t>(index)]);
}

// Hands the reduction's next messages to the transport; closes it when there are no more.
Status StepRun::make_calls(int32_t index, Reduction& reduction) {
  const Op& it = op(index);
  for (const ReductionCall& call : reduction.startable()) {
    const Tag tag =
        tag_of_move(it.group, it.part, call.round, call.chunk, input_.epoch, name_.serial);
    const int32_t number = table_.first_call(index) + call.index;
    Status status = ok();
    if (call.send) {
      Stamp stamp{machine_.clock->now(), {}};
      if (machine_.links != nullptr) {
        const Bytes size{static_cast<int64_t>(call.source.size())};
        const Passage passage = machine_.links->send(call.peer, size, call.ready, tag);
        stamp = {passage.start, passage.arrival};
        left_[static_cast<size_t>(number)] = passage.finish;
      }
      stamp.tally = call.tally;
      status = machine_.transport->send(call.peer, tag, call.source, stamp, begin_call(number));
    } else {
      status = machine_.transport->recv(call.peer, tag, call.target, begin_call(number));
    }
    if (!status.ok()) {
      calls_[static_cast<size_t>(number)] = Call::Over;
      --under_way_;
      return status;
    }
  }
  return reduction.done() ? close_reduce(index) : ok();
}

// The weight gradients of this worker that are in the sum which it brings to a reduction.
std::vector<Contribution> StepRun::brought_to(const Op& reduce) const {
  std::vector<Contribution> brought;
  for (const Value& value : walk_.stored()) {
    if (value.kind != ValueKind::Partial || value.stage != reduce.stage) continue;
    brought.push_back({value.stage, value.micro});
  }
  return brought;
}

// Checks a total before a Step uses it: all weight gradients of the step must be in it, each once.
// The total is divided by the count of micro-batches, so nobody would notice a sum of other
// gradients.
Status StepRun::audit(int32_t index) const {
  const Op& it = op(index);
  std::vector<Contribution> wanted;
  for (const StageId stage : schedule_.groups[static_cast<size_t>(it.group.value)].stages) {
    for (int32_t m = 0; m < schedule_.micro_count; ++m) wanted.push_back({stage, {m}});
  }
  const uint64_t tally = tally_of(wanted);
  const uint64_t found = reductions_[static_cast<size_t>(index)]->tally_beside(tally);
  if (found == tally) return ok();
  return Error{Code::Corrupt, Reach::Worker, difference_of(wanted, found, brought_to(it))};
}

Status StepRun::close_reduce(int32_t index) {
  if (Status right = audit(index); !right.ok()) return right;
  Reduction& reduction = *reductions_[static_cast<size_t>(index)];
  scratch_.push_back(reduction.take_scratch());
  row(index).finish = machine_.links != nullptr ? reduction.done_at() : machine_.clock->now();
  reduced_at_ = row(index).finish;
  reductions_[static_cast<size_t>(index)].reset();
  const Op& it = op(index);
  if (Status status = machine_.compute->reduced({ValueKind::Total, it.part, it.stage, {}});
      !status.ok()) {
    return status;
  }
  complete(index);
  return ok();
}

// The op has ended: moves the walk on, releases the values that it freed, and notes the event.
void StepRun::complete(int32_t index) {
  for (const Value& value : walk_.finish(index)) let_go(value, op(index));
  Row& my = row(index);
  my.done = true;
  Event event;
  event.worker = input_.self;
  event.step = input_.step;
  event.op = op(index);
  event.start = my.start;
  event.finish = my.finish;
  event.moved = {my.bytes};
  event.sent = my.sent;
  events_.push_back(event);
  ++ended_;
  observer_.ended(static_cast<int64_t>(events_.size()));
  if (event.op.kind == OpKind::Validate && --validations_ == 0) observer_.validated();
}

// Keeps a value that a send or a Step used last, since other workers may need it again. Discards
// others: an input of another op was received, and its sender keeps it.
void StepRun::let_go(const Value& value, const Op& by) {
  const bool sent = by.kind == OpKind::Send && has_micro(by);
  const bool total = by.kind == OpKind::Step && value.kind == ValueKind::Total;
  if (input_.recovery.holding == nullptr || !(sent || total))
    return machine_.compute->discard(value);
  keep(value);
}

void StepRun::keep(const Value& value) {
  const bool travels = feeds_compute(value.kind);
  const auto bytes = travels ? machine_.compute->bytes(value) : std::span<const std::byte>();
  const auto size = bytes.ok() ? static_cast<int64_t>(bytes.value().size()) : 0;
  machine_.compute->keep(value);
  for (const Value& gone : input_.recovery.holding->keep(value, size)) machine_.compute->drop(gone);
}

// The run is over: what is in the store now is all that the worker has of the step.
void StepRun::close_holding() {
  Holding* holding = input_.recovery.holding;
  if (holding == nullptr) return;
  std::vector<StageId> stepped;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (rows_[i].done && list_[i].kind == OpKind::Step) stepped.push_back(list_[i].stage);
  }
  std::vector<Value> stored = walk_.stored();
  // If backward is not split, weight work stands for a weight gradient that this run has added to
  // the sum. For the gradients in unsummed_ it has added none.
  std::erase_if(stored, [&](const Value& value) {
    const Value gradient{ValueKind::Gradient, -1, value.stage, value.micro};
    return value.kind == ValueKind::WeightWork && !input_.plan->split_backward &&
           contains(unsummed_, gradient);
  });
  const bool all = walk_.done();
  // The step after takes the store over, so keep what other workers may need.
  for (const Value& value : stored) {
    const bool shared = feeds_compute(value.kind) || value.kind == ValueKind::Total ||
                        value.kind == ValueKind::ClipDecision;
    if (all && shared) keep(value);
  }
  if (all) stored.clear();
  holding->end(std::move(stored), stepped);
}

// Marks an op as done that was run ahead of the step.
void StepRun::pass_over(int32_t index) {
  walk_.finish(index);
  row(index).done = true;
  ++ended_;
}

Status StepRun::take(const Done& done) {
  if (done.ticket == kNoTicket) {
    if (done.peer.value < 0) return read_standing();
    return take_lost(done.peer, done.status.ok()
                                    ? Error{Code::Disconnected, Reach::Worker, "no reason is known"}
                                    : done.status.error());
  }
  const uint64_t call = static_cast<uint64_t>(done.ticket) - base_;
  if (call >= calls_.size() || calls_[call] != Call::UnderWay) {  // not of this step
    observer_.other(done);
    return ok();
  }
  calls_[call] = Call::Over;
  --under_way_;
  deadline_ = machine_.clock->now() + input_.limits.silence;
  const auto number = static_cast<int32_t>(call);
  if (call < list_.size()) return take_op(number, done);
  if (number >= first_note_) return take_note(number - first_note_, done);
  return take_message(number, done);
}

Status StepRun::take_op(int32_t index, const Done& done) {
  const Op& it = op(index);
  if (!done.status.ok()) return fail(index, it.peer, done.status.error());
  Row& my = row(index);
  const Duration now = done.finish.count() != 0 ? done.finish : machine_.clock->now();
  if (is_message(it) && queued(index)) {
    if (it.kind == OpKind::Recv) {
      my.sent = done.sent;
      awaited_ -= feeds_compute(it.moved);
      queue_->set_theirs(index, done.sent);
      queue_->set_way(index, now - done.sent);
    }
    queue_->set_moved(index);
    settle(index);
    return ok();
  }
  if (it.kind == OpKind::Send) {
    if (machine_.links == nullptr) my.finish = now;
  } else if (it.kind == OpKind::Recv) {
    my.finish = now;
    my.sent = done.sent;
    if (feeds_compute(it.moved)) {
      --awaited_;
      if (choosing_ && (computing_ || now > choice_at_)) {
        held_.emplace(now.count(), index);
        return ok();
      }
    }
  } else {
    if (done.start.count() != 0) my.start = done.start;
    my.finish = now;
    computing_ = false;
    if (it.kind != OpKind::Validate) choice_at_ = std::max(choice_at_, now);
    if (queued(index)) queue_->end(index, now);
  }
  complete(index);
  return ok();
}

Status StepRun::take_message(int32_t call, const Done& done) {
  const int32_t index = table_.reduce_of(call);
  if (!done.status.ok()) return fail(index, peer_of_call(call), done.status.error());
  Reduction& reduction = *reductions_[static_cast<size_t>(index)];
  Duration at = done.finish.count() != 0 ? done.finish : machine_.clock->now();
  if (!left_.empty() && left_[static_cast<size_t>(call)].count() != 0) {
    at = left_[static_cast<size_t>(call)];
  }
  reduction.finish(call - table_.first_call(index), at, done.tally);
  Status status = make_calls(index, reduction);
  if (!status.ok()) return explain(index, status.error(), {});
  return ok();
}

// A call has failed; if its peer is lost, that is reported too.
Error StepRun::fail(int32_t index, WorkerId peer, const Error& error) {
  if (error.code == Code::Disconnected && peer.value >= 0) note_lost(peer, error);
  return explain(index, error, peer);
}

void StepRun::note_lost(WorkerId peer, const Error& error) {
  if (lost_.insert(peer).second) observer_.lost(peer, error);
}

// A lost peer ends the step if this worker still has ops with it; a peer that only left early, with
// all its ops done, does not.
Status StepRun::take_lost(WorkerId peer, const Error& error) {
  note_lost(peer, error);
  std::string waiting;
  if (!has_business_with(peer, waiting)) return ok();
  return Error{error.code, error.reach,
               cat(place(), ": lost worker ", peer, " (", error.message, "), which was needed for ",
                   waiting, " was still to be done")};
}

bool StepRun::has_business_with(WorkerId peer, std::string& waiting) const {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (rows_[i].done) continue;
    const Op& it = list_[i];
    bool concerned = false;
    if (it.kind == OpKind::Send || it.kind == OpKind::Recv) concerned = it.peer == peer;
    if (it.kind == OpKind::Reduce) {
      const auto& members = table_.collective(schedule_, static_cast<int32_t>(i)).members;
      concerned = contains(members, peer);
    }
    if (!concerned) continue;
    waiting = to_text(it);
    return true;
  }
  return false;
}

WorkerId StepRun::peer_of_call(int32_t call) const {
  if (static_cast<size_t>(call) < list_.size() || call >= first_note_) {
    const Op& it = op(call < first_note_ ? call : call - first_note_);
    return it.kind == OpKind::Send || it.kind == OpKind::Recv ? it.peer : WorkerId{};
  }
  const int32_t index = table_.reduce_of(call);
  const auto& reduction = reductions_[static_cast<size_t>(index)];
  return reduction == nullptr ? WorkerId{} : reduction->peer_of(call - table_.first_call(index));
}

std::string StepRun::place() const {
  std::string stages;
  for (const StageId stage : stages_of(input_.plan->stages, input_.self)) {
    stages += cat(stages.empty() ? "" : ", ", stage);
  }
  return cat("worker ", input_.self, " (stage ", stages.empty() ? "none" : stages, "), ",
             input_.evaluation ? "evaluation at step " : "step ", input_.step);
}

Error StepRun::explain(int32_t index, const Error& error, WorkerId peer) const {
  const std::string with = peer.value < 0 ? "" : cat(" with worker ", peer);
  return {error.code, error.reach,
          cat(place(), ": ", to_text(op(index)), with, " failed: ", error.message)};
}

Error StepRun::silence() const {
  std::vector<uint8_t> done(list_.size()), under_way(list_.size());
  size_t ended = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    done[i] = rows_[i].done;
    ended += rows_[i].done;
    under_way[i] = calls_[i] == Call::UnderWay || reductions_[i] != nullptr;
  }
  std::vector<int32_t> held_back;
  for (const int32_t index : heads_) {
    const auto i = static_cast<size_t>(index);
    if (done[i] == 0 && under_way[i] == 0) held_back.push_back(index);
  }
  return {Code::Timeout, Reach::Worker,
          cat(place(), ": no op or message completed for ",
              fixed(to_milliseconds(input_.limits.silence), 0), " ms; ", ended, " of ",
              list_.size(), " ops are done
",
              hang_report(walk_, done, under_way, held_back))};
}

// Leaves nothing under way, see run_step.
Error StepRun::retire(Error error) {
  std::set<WorkerId> peers;
  for (size_t call = 0; call < calls_.size(); ++call) {
    if (calls_[call] != Call::UnderWay) continue;
    const WorkerId peer = peer_of_call(static_cast<int32_t>(call));
    if (peer.value >= 0) peers.insert(peer);
  }
  for (const WorkerId peer : peers) {
    if (Status status = machine_.transport->drop(peer); !status.ok()) {
      error.message += cat("; worker ", peer, " could not be dropped: ", status.error().message);
    }
  }
  const Duration end = machine_.clock->now() + input_.limits.retire;
  while (under_way_ > 0) {
    const Duration left = end - machine_.clock->now();
    if (left.count() <= 0) break;
    const Result<Done> report = machine_.mailbox->wait(left);
    if (!report.ok()) break;
    const Done& done = report.value();
    if (done.ticket == kNoTicket) {
      // A peer that this worker has just dropped does not count as lost.
      if (done.peer.value >= 0 && !peers.contains(done.peer) && !done.status.ok()) {
        note_lost(done.peer, done.status.error());
      }
      continue;
    }
    const uint64_t call = static_cast<uint64_t>(done.ticket) - base_;
    if (call >= calls_.size() || calls_[call] != Call::UnderWay) continue;
    calls_[call] = Call::Over;
    --under_way_;
    // A compute op that ends now counts: its results are there, also those in a sum.
    const auto number = static_cast<int32_t>(call);
    const bool computed = call < list_.size() && !is_message(op(number));
    if (computed && done.status.ok() && input_.recovery.holding != nullptr) complete(number);
  }
  close_holding();
  if (under_way_ == 0) return error;
  error.reach = Reach::Job;
  error.message += cat("; ", under_way_, " calls are still under way after ",
                       fixed(to_milliseconds(input_.limits.retire), 0),
                       " ms, so their memory is in use: this process must end");
  keep_forever(std::move(reductions_));
  keep_forever(std::move(queue_));
  return error;
}

}  // namespace tenuto
