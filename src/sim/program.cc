#include "sim/program.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "ir/effect.h"
#include "ir/pairing.h"

namespace tenuto {

namespace {

// Runs of writer_: what is made where it is needed, and what came over a wire.
enum Slot : int32_t {
  ActivationMade,
  ActivationReceived,
  GradientMade,
  GradientReceived,
  StashMade,
  WeightWorkMade,
  kSlotCount
};

constexpr int32_t kNoSlot = -1;

int32_t slot_of(ValueKind kind, bool received) {
  switch (kind) {
    case ValueKind::Activation:
      return received ? ActivationReceived : ActivationMade;
    case ValueKind::Gradient:
      return received ? GradientReceived : GradientMade;
    case ValueKind::Stash:
      return received ? kNoSlot : StashMade;
    case ValueKind::WeightWork:
      return received ? kNoSlot : WeightWorkMade;
    default:
      return kNoSlot;
  }
}

bool of_micro(const Value& value) { return slot_of(value.kind, false) != kNoSlot; }

bool is_message(OpKind kind) { return kind == OpKind::Send || kind == OpKind::Recv; }

}  // namespace

Result<Program> Program::make(const Schedule& schedule, bool (*keep)(const Op&)) {
  Program program(schedule);
  if (const Status status = program.build(keep); !status.ok()) return status.error();
  return program;
}

Status Program::build(bool (*keep)(const Op&)) {
  make_room();
  all_kept_ = keep == nullptr;
  for (int32_t worker = 0; worker < static_cast<int32_t>(schedule_->lists.size()); ++worker) {
    note_writes(worker, keep);
    note_reads(worker);
  }
  if (const Status status = pair(); !status.ok()) return status;
  kinds_.clear();
  class_index_ = writer_ = {};
  step_values_.clear();
  step_messages_.clear();
  return ok();
}

void Program::make_room() {
  int64_t ops = 0;
  int32_t low = INT32_MAX, high = -1;
  first_.push_back(0);
  for (const auto& list : schedule_->lists) {
    ops += static_cast<int64_t>(list.size());
    CHECK(ops < INT32_MAX, "more ops than numbers");
    first_.push_back(static_cast<int32_t>(ops));
    for (const Op& op : list) {
      if (op.micro.value < 0) continue;
      low = std::min(low, op.micro.value);
      high = std::max(high, op.micro.value);
    }
  }
  micro_first_ = high < 0 ? 0 : low;
  const size_t micros = high < 0 ? 0 : at(high - low) + 1;
  const size_t stages = at(schedule_->stage_count);
  CHECK(at(kSlotCount) * stages * micros < INT32_MAX, "more values than numbers");
  writer_.assign(at(kSlotCount) * stages * micros, -1);
  class_index_.assign(at(kValueKindCount) * 16 * stages, -1);
  for (auto* each : {&lane_, &after_in_lane_, &edge_of_, &partner_, &release_}) {
    each->assign(at(first_.back()), -1);
  }
  missing_.assign(at(first_.back()), 0);
  class_of_.assign(at(first_.back()), -1);
  edges_.reserve(at(first_.back()));
}

// Where the run of such values begins in writer_; -1 for values of the whole step.
int32_t Program::run_of(const Value& value, bool received) const {
  const int32_t slot = slot_of(value.kind, received);
  if (slot == kNoSlot) return -1;
  const auto micros =
      static_cast<int32_t>(writer_.size() / at(kSlotCount) / at(schedule_->stage_count));
  return (slot * schedule_->stage_count + value.stage.value) * micros;
}

Program::Class Program::describe(const Op& op) const {
  const Effect effect = effect_of(op, schedule_->stage_count);
  Class kind;
  for (const Value& value : effect.read) {
    if (!of_micro(value)) {
      kind.whole_step = true;
      continue;
    }
    const bool freed =
        std::find(effect.free.begin(), effect.free.end(), value) != effect.free.end();
    kind.reads.push_back({run_of(value, false), run_of(value, true), freed});
  }
  for (const Value& value : effect.write) {
    if (of_micro(value)) kind.writes.push_back(run_of(value, op.kind == OpKind::Recv));
    if (!of_micro(value) && value.kind != ValueKind::Partial) kind.whole_step = true;
  }
  return kind;
}

int32_t Program::find_class(const Op& op) {
  const size_t key =
      (at(static_cast<int>(op.kind)) * at(kValueKindCount) + at(static_cast<int>(op.moved))) *
          at(schedule_->stage_count) +
      at(op.stage.value);
  if (key >= class_index_.size()) class_index_.resize(key + 1, -1);
  if (class_index_[key] < 0) {
    class_index_[key] = static_cast<int32_t>(kinds_.size());
    kinds_.push_back(describe(op));
    classes_.push_back(op);
  }
  return class_index_[key];
}

int32_t Program::find_lane(int32_t worker, const Op& op) {
  const LaneKind kind = lane_of(op);
  const int32_t peer = is_message(op.kind) ? op.peer.value : -1;
  for (size_t lane = lanes_begin_; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].kind == kind && lanes_[lane].peer == peer) return static_cast<int32_t>(lane);
  }
  lanes_.push_back({kind, worker, peer, -1, -1});
  return static_cast<int32_t>(lanes_.size()) - 1;
}

// Sorts the worker's ops into classes and lanes and notes who writes what.
void Program::note_writes(int32_t worker, bool (*keep)(const Op&)) {
  lanes_begin_ = lanes_.size();
  lanes_.push_back({LaneKind::Compute, worker, -1, -1, -1});
  step_values_.clear();
  const auto& list = schedule_->lists[at(worker)];
  for (size_t i = 0; i < list.size(); ++i) {
    const Op& op = list[i];
    if (keep != nullptr && !keep(op)) continue;
    const int32_t number = first_[at(worker)] + static_cast<int32_t>(i);
    ++kept_;
    const int32_t lane_index = find_lane(worker, op);
    lane_[at(number)] = lane_index;
    Lane& lane = lanes_[at(lane_index)];
    if (lane.tail >= 0) after_in_lane_[at(lane.tail)] = number;
    if (lane.head < 0) lane.head = number;
    lane.tail = number;
    const int32_t class_index = find_class(op);
    class_of_[at(number)] = class_index;
    const Class& kind = kinds_[at(class_index)];
    for (const int32_t run : kind.writes) {
      writer_[at(run + op.micro.value - micro_first_)] = number;
    }
    if (op.kind == OpKind::BackwardWeight || kind.whole_step) {
      for (const Value& value : effect_of(op, schedule_->stage_count).write) {
        if (!of_micro(value)) step_values_.push_back({value, number});
      }
    }
    if (is_message(op.kind) && kind.whole_step) step_messages_.push_back(number);
  }
}

void Program::note_reads(int32_t worker) {
  const auto& list = schedule_->lists[at(worker)];
  for (size_t i = 0; i < list.size(); ++i) {
    const int32_t number = first_[at(worker)] + static_cast<int32_t>(i);
    if (lane_[at(number)] < 0) continue;
    const Class& kind = kinds_[at(class_of_[at(number)])];
    read(kind, list[i], number);
    if (kind.whole_step) read_whole(list[i], number);
  }
}

// Values of a micro-batch: the op of this worker that wrote it, made here or received here.
void Program::read(const Class& kind, const Op& op, int32_t number) {
  const int32_t low = first_[at(worker(number))], high = first_[at(worker(number)) + 1];
  for (const Place& place : kind.reads) {
    int32_t writer = -1;
    for (const int32_t run : {place.received, place.made}) {
      if (run < 0) continue;
      const int32_t found = writer_[at(run + op.micro.value - micro_first_)];
      if (found >= low && found < high) {
        writer = found;
        break;
      }
    }
    join(writer, number, place.freed);
  }
}

// Values of the step: norm, verdict, and every partial or total of a stage.
void Program::read_whole(const Op& op, int32_t number) {
  const Effect effect = effect_of(op, schedule_->stage_count);
  for (const Value& value : effect.read) {
    if (of_micro(value)) continue;
    const bool freed =
        std::find(effect.free.begin(), effect.free.end(), value) != effect.free.end();
    bool found = false;
    for (const Writer& writer : step_values_) {
      const bool same = means_every(value)
                            ? writer.value.kind == value.kind && writer.value.stage == value.stage
                            : writer.value == value;
      if (!same) continue;
      found = true;
      join(writer.op, number, freed);
    }
    // What a writer that is not kept would have written, nobody waits for.
    if (!found && !means_every(value) && all_kept_) join(-1, number, false);
  }
}

void Program::join(int32_t writer, int32_t reader, bool freed) {
  ++missing_[at(reader)];
  if (writer < 0) return;  // nobody here writes it: the reader never starts
  edges_.push_back({reader, edge_of_[at(writer)]});
  edge_of_[at(writer)] = static_cast<int32_t>(edges_.size()) - 1;
  const int32_t lane = lane_[at(writer)];
  const LaneKind kind = lanes_[at(lane)].kind;
  if (freed && (kind == LaneKind::RecvForward || kind == LaneKind::RecvBackward)) {
    release_[at(reader)] = lane;
  }
}

// Messages of the step are named alike in every pipeline: paired by value and ends.
bool Program::pair_step_messages() {
  const auto key = [&](int32_t number) {
    const Op& message = op(number);
    const bool sends = message.kind == OpKind::Send;
    const int32_t self = worker(number), peer = message.peer.value;
    return std::tuple(sends ? self : peer, sends ? peer : self, moved_value(message), sends);
  };
  std::sort(step_messages_.begin(), step_messages_.end(),
            [&](int32_t left, int32_t right) { return key(left) < key(right); });
  for (size_t i = 0; i + 1 < step_messages_.size(); i += 2) {
    auto recv = key(step_messages_[i]), send = key(step_messages_[i + 1]);
    if (std::get<3>(recv) || !std::get<3>(send)) return false;
    std::get<3>(recv) = true;
    if (recv != send) return false;
    partner_[at(step_messages_[i])] = step_messages_[i + 1];
    partner_[at(step_messages_[i + 1])] = step_messages_[i];
  }
  return step_messages_.size() % 2 == 0;
}

// The two ends of each message. By value alone where a value crosses one wire only, else by the
// general rule of pair_messages, which also has the words for an end without the other.
Status Program::pair() {
  bool simple = true;
  for (int32_t number = 0; number < size() && simple; ++number) {
    if (lane_[at(number)] < 0) continue;
    const Lane& lane = lanes_[at(lane_[at(number)])];
    if (lane.kind != LaneKind::SendForward && lane.kind != LaneKind::SendBackward) continue;
    const Op& send = op(number);
    if (send.micro.value < 0) continue;
    const int32_t other =
        writer_[at(run_of(moved_value(send), true) + send.micro.value - micro_first_)];
    simple = other >= 0 && partner_[at(other)] < 0 && worker(other) == lane.peer &&
             op(other).peer.value == lane.worker;
    if (!simple) break;
    partner_[at(number)] = other;
    partner_[at(other)] = number;
  }
  simple = simple && pair_step_messages();
  for (int32_t number = 0; number < size() && simple; ++number) {
    if (lane_[at(number)] >= 0 && lanes_[at(lane_[at(number)])].kind >= LaneKind::SendForward) {
      simple = partner_[at(number)] >= 0;
    }
  }
  if (simple) return ok();
  auto pairing = pair_messages(*schedule_);
  if (!pairing.ok()) return pairing.error();
  partner_ = std::move(pairing.value().partner);
  return ok();
}

}  // namespace tenuto
