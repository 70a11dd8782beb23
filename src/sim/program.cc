#include "sim/program.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/contains.h"
#include "ir/pairing.h"

namespace tenuto {

namespace {

// The ranges of writer_: one for each kind of value, made at the worker itself or received there.
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

}  // namespace

Result<Program> Program::make(const Schedule& schedule, bool (*keep)(const Op&),
                              const Stores* stores) {
  Program program(schedule);
  if (const Status status = program.build(keep, stores); !status.ok()) return status.error();
  return program;
}

Status Program::build(bool (*keep)(const Op&), const Stores* stores) {
  allocate_ops();
  all_kept_ = keep == nullptr;
  for (int32_t worker = 0; worker < static_cast<int32_t>(schedule_->lists.size()); ++worker) {
    if (stores != nullptr && !stores->empty()) stored_ = (*stores)[at(worker)];
    std::sort(stored_.begin(), stored_.end());
    note_writes(worker, keep);
    note_reads(worker);
  }
  if (const Status status = pair(); !status.ok()) return status;
  kinds_.clear();
  class_index_ = writer_ = first_end_ = {};
  step_values_.clear();
  stored_.clear();
  step_messages_.clear();
  return ok();
}

void Program::allocate_ops() {
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
  first_end_.assign(writer_.size(), -1);
  nodes_.assign(at(first_.back()), {});
  missing_.assign(at(first_.back()), 0);
  edges_.reserve(at(first_.back()));
}

// Where the range of such values of this stage begins in writer_; -1 for values of the whole step.
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
      kind.step_reads = true;
      continue;
    }
    const bool freed = contains(effect.free, value);
    kind.reads.push({run_of(value, false), run_of(value, true), freed});
  }
  for (const Value& value : effect.write) {
    if (of_micro(value)) {
      kind.writes.push(run_of(value, op.kind == OpKind::Recv));
    } else {
      kind.step_writes.push_back(value);
    }
  }
  if (is_message(op.kind) && of_micro(moved_value(op))) {
    kind.travels = run_of(moved_value(op), true);
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
    Node& node = nodes_[at(number)];
    node.lane = lane_index;
    Lane& lane = lanes_[at(lane_index)];
    if (lane.tail >= 0) nodes_[at(lane.tail)].after_in_lane = number;
    if (lane.head < 0) lane.head = number;
    lane.tail = number;
    node.kind = find_class(op);
    const Class& kind = kinds_[at(node.kind)];
    for (const int32_t run : kind.writes) {
      writer_[at(run + op.micro.value - micro_first_)] = number;
    }
    for (Value value : kind.step_writes) {
      if (value.micro.value >= 0) value.micro = op.micro;
      step_values_.push_back({value, number});
    }
    if (!is_message(op.kind)) continue;
    ++messages_;
    if (kind.travels >= 0) {
      meet(kind.travels + op.micro.value - micro_first_, number);
    } else {
      step_messages_.push_back(number);
    }
  }
}

// Notes one end of a message; pairs it if the other end has been noted before.
void Program::meet(int32_t run, int32_t number) {
  int32_t& before = first_end_[at(run)];
  if (before < 0) {
    before = number;
    return;
  }
  const Lane& mine = lanes_[at(lane(number))];
  const Lane& other = lanes_[at(lane(before))];
  const bool opposite = (mine.kind < LaneKind::RecvForward) != (other.kind < LaneKind::RecvForward);
  if (opposite && mine.peer == other.worker && other.peer == mine.worker && partner(before) < 0) {
    couple(before, number);
  }
}

void Program::couple(int32_t one, int32_t other) {
  nodes_[at(one)].partner = other;
  nodes_[at(other)].partner = one;
  paired_ += 2;
}

void Program::note_reads(int32_t worker) {
  const auto& list = schedule_->lists[at(worker)];
  for (size_t i = 0; i < list.size(); ++i) {
    const int32_t number = first_[at(worker)] + static_cast<int32_t>(i);
    if (lane(number) < 0) continue;
    const Class& kind = kinds_[at(class_of(number))];
    read(kind, list[i], number);
    if (kind.step_reads) read_whole(list[i], number);
  }
}

bool Program::is_stored(const Value& value) const {
  return std::binary_search(stored_.begin(), stored_.end(), value);
}

// True when value number `read` that the op reads, not counting values of the whole step, is
// stored.
bool Program::is_stored(const Op& op, size_t read) const {
  if (stored_.empty()) return false;
  for (const Value& value : effect_of(op, schedule_->stage_count).read) {
    if (of_micro(value) && read-- == 0) return is_stored(value);
  }
  return false;
}

// Makes the op wait for the values of a micro-batch that it reads: for the op of this worker that
// makes or receives each.
void Program::read(const Class& kind, const Op& op, int32_t number) {
  const int32_t self = worker(number);
  const int32_t low = first_[at(self)], high = first_[at(self) + 1];
  size_t index = 0;
  for (const Place& place : kind.reads) {
    const size_t read = index++;
    int32_t writer = -1;
    for (const int32_t run : {place.received, place.made}) {
      if (run < 0) continue;
      const int32_t found = writer_[at(run + op.micro.value - micro_first_)];
      if (found >= low && found < high) {
        writer = found;
        break;
      }
    }
    if (writer < 0 && is_stored(op, read)) continue;
    join(writer, number, place.freed);
  }
}

// Makes the op wait for the values of the whole step that it reads: norm, clip decision, and every
// partial or total of a stage.
void Program::read_whole(const Op& op, int32_t number) {
  const Effect effect = effect_of(op, schedule_->stage_count);
  for (const Value& value : effect.read) {
    if (of_micro(value)) continue;
    const bool freed = contains(effect.free, value);
    bool found = false;
    for (const Writer& writer : step_values_) {
      const bool same = means_every(value)
                            ? writer.value.kind == value.kind && writer.value.stage == value.stage
                            : writer.value == value;
      if (!same) continue;
      found = true;
      join(writer.op, number, freed);
    }
    // No op waits for a stored value, nor for one whose writer is not kept.
    if (is_stored(value)) continue;
    if (!found && !means_every(value) && all_kept_) join(-1, number, false);
  }
}

void Program::join(int32_t writer, int32_t reader, bool freed) {
  ++missing_[at(reader)];
  if (writer < 0) return;  // nobody here writes it: the reader never starts
  Node& node = nodes_[at(writer)];
  edges_.push_back({reader, node.edge});
  node.edge = static_cast<int32_t>(edges_.size()) - 1;
  const LaneKind kind = lanes_[at(node.lane)].kind;
  if (freed && (kind == LaneKind::RecvForward || kind == LaneKind::RecvBackward)) {
    nodes_[at(reader)].release = node.lane;
  }
}

// Messages of the whole step have the same names in every pipeline: pairs them by value and ends.
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
    couple(step_messages_[i], step_messages_[i + 1]);
  }
  return step_messages_.size() % 2 == 0;
}

// Most messages were paired while they were noted. pair_messages pairs the rest and returns the
// error for an end without the other.
Status Program::pair() {
  if (pair_step_messages() && paired_ == messages_) return ok();
  auto pairing = pair_messages(*schedule_);
  if (!pairing.ok()) return pairing.error();
  for (int32_t number = 0; number < size(); ++number) {
    nodes_[at(number)].partner = pairing.value().partner[at(number)];
  }
  return ok();
}

}  // namespace tenuto
