#include "ir/walk.h"

#include <algorithm>
#include <bit>
#include <map>

#include "ir/effect.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

bool is_recv(LaneKind kind) {
  return kind == LaneKind::RecvForward || kind == LaneKind::RecvBackward;
}

bool is_backward(ValueKind kind) { return kind == ValueKind::Gradient || kind == ValueKind::Norm; }

// What tells the lanes of a worker apart.
std::pair<LaneKind, WorkerId> lane_key(const Op& op) {
  const LaneKind kind = lane_of(op);
  const bool has_peer = kind != LaneKind::Compute && kind != LaneKind::Reduce;
  return {kind, has_peer ? op.peer : WorkerId{}};
}

// Gives values small numbers: open addressing over the names.
class Names {
 public:
  Names(size_t most, std::vector<Value>& names)
      : names_(names), slots_(std::bit_ceil(2 * most + 2), -1) {}

  // The number of `value`; a new one if it has none yet.
  int32_t number(const Value& value) {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash(value) & mask;; slot = (slot + 1) & mask) {
      const int32_t found = slots_[slot];
      if (found < 0) {
        slots_[slot] = static_cast<int32_t>(names_.size());
        names_.push_back(value);
        return slots_[slot];
      }
      if (names_[at(found)] == value) return found;
    }
  }

 private:
  static size_t hash(const Value& value) {
    uint64_t word = (static_cast<uint64_t>(static_cast<uint32_t>(value.micro.value)) << 32) |
                    static_cast<uint32_t>(value.stage.value);
    word ^= (static_cast<uint64_t>(value.kind) << 24) ^
            (static_cast<uint64_t>(static_cast<uint16_t>(value.part)) << 44);
    word *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(word >> 29);
  }

  std::vector<Value>& names_;
  std::vector<int32_t> slots_;
};

}  // namespace

LaneKind lane_of(const Op& op) {
  switch (op.kind) {
    case OpKind::Send:
      return is_backward(op.moved) ? LaneKind::SendBackward : LaneKind::SendForward;
    case OpKind::Recv:
      return is_backward(op.moved) ? LaneKind::RecvBackward : LaneKind::RecvForward;
    case OpKind::Reduce:
      return LaneKind::Reduce;
    default:
      return LaneKind::Compute;
  }
}

namespace {

Limit limit_of(const Plan& plan, WorkerId self) {
  return at(self.value) < plan.limits.size() ? plan.limits[at(self.value)] : Limit{};
}

std::span<const Op> list_of(const Schedule& schedule, WorkerId self) {
  CHECK(self.value >= 0 && at(self.value) < schedule.lists.size(), "a walk needs a list");
  return schedule.lists[at(self.value)];
}

}  // namespace

int32_t most_in_flight(const Plan& plan, const Schedule& schedule, WorkerId worker) {
  int32_t forwards = 0, in_flight = 0, peak = 0;
  for (const Op& op : list_of(schedule, worker)) {
    if (op.kind == OpKind::Forward) ++forwards, peak = std::max(peak, ++in_flight);
    if (op.kind == OpKind::BackwardInput) --in_flight;
  }
  if (plan.dispatch == Dispatch::Listed) return peak;
  const Limit limit = limit_of(plan, worker);
  if (limit.micros > 0) forwards = std::min(forwards, limit.micros);
  return limit.memory.most_whole(forwards);
}

Walk::Walk(const Plan& plan, const Schedule& schedule, WorkerId self, int32_t receives_ahead,
           std::span<const Value> stored)
    : list_(list_of(schedule, self)), compute_(list_, plan.dispatch, limit_of(plan, self)) {
  CHECK(receives_ahead >= 1, "a receive needs a buffer");
  state_.assign(list_.size(), State::Waiting);
  index_lanes();
  count_buffers(plan, schedule, self, receives_ahead);
  index_values(schedule.stage_count, stored);
  index_readers();
  store(stored);
  startable_.reserve(list_.size() + 1);
  offers_.reserve(list_.size());
  for (size_t lane = 1; lane < lanes_.size(); ++lane) {
    offer_from(lanes_[lane], static_cast<int32_t>(lane));
  }
}

// Sorts all ops but those of the compute lane into their lanes, in list order.
void Walk::index_lanes() {
  std::map<std::pair<LaneKind, WorkerId>, int32_t> numbers = {{{LaneKind::Compute, {}}, 0}};
  for (const Op& op : list_) {
    numbers.try_emplace(lane_key(op), 0);
  }
  for (auto& [key, number] : numbers) {
    number = static_cast<int32_t>(lanes_.size());
    lanes_.push_back({key.first, key.second, 0, 0, 0, 0, false});
  }
  std::vector<int32_t> count(lanes_.size(), 0);
  lane_.reserve(list_.size());
  for (const Op& op : list_) {
    lane_.push_back(numbers.find(lane_key(op))->second);
    if (lane_.back() != 0) ++count[at(lane_.back())];
  }
  int32_t place = 0;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].next = lanes_[lane].end = place;
    place += count[lane];
  }
  lane_ops_.resize(at(place));
  for (size_t i = 0; i < list_.size(); ++i) {
    if (lane_[i] != 0) lane_ops_[at(lanes_[at(lane_[i])].end++)] = static_cast<int32_t>(i);
  }
}

// Gives each receive lane its buffers, see kReceivesAhead.
void Walk::count_buffers(const Plan& plan, const Schedule& schedule, WorkerId self, int32_t most) {
  for (Lane& lane : lanes_) {
    if (!is_recv(lane.kind)) continue;
    const auto stays = [&](int32_t index) { return lives_to_end(list_[at(index)].moved); };
    const auto staying =
        std::count_if(lane_ops_.begin() + lane.next, lane_ops_.begin() + lane.end, stays);
    lane.buffers = std::max(most, static_cast<int32_t>(staying));
    if (lane.peer.value < 0 || at(lane.peer.value) >= schedule.lists.size()) continue;
    const bool forward = lane.kind == LaneKind::RecvForward;
    const int32_t slots = most_in_flight(plan, schedule, forward ? lane.peer : self);
    if (slots == 0) continue;
    int32_t place = lane.next, of_step = 0;
    for (const Op& op : schedule.lists[at(lane.peer.value)]) {
      if (op.kind != OpKind::Send || op.peer != self || is_backward(op.moved) == forward) continue;
      if (place == lane.end || moved_value(op) != moved_value(list_[at(lane_ops_[at(place)])])) {
        break;
      }
      of_step += has_micro(op) ? 0 : 1;
      ++place;
    }
    if (place == lane.end) lane.buffers = std::min(lane.buffers, slots + of_step);
  }
}

// Numbers the values and notes what each op reads, writes and frees.
void Walk::index_values(int32_t stage_count, std::span<const Value> stored) {
  const size_t count = list_.size();
  const size_t most = 2 * count + 4 + stored.size();
  names_.reserve(most);
  Names names(most, names_);
  std::map<StageId, std::vector<int32_t>> partials, totals;
  const auto note_whole = [&](const Value& value, int32_t id) {
    if (value.kind == ValueKind::Partial) partials[value.stage].push_back(id);
    if (value.kind == ValueKind::Total) totals[value.stage].push_back(id);
  };
  for (const Value& value : stored) {
    note_whole(value, names.number(value));
    CHECK(at(++stored_count_) == names_.size(), "a value is stored once");
    recv_lane_.push_back(-1);
  }
  for (const Op& op : list_) {
    write_first_.push_back(static_cast<int32_t>(write_.size()));
    const Effect effect = effect_of(op, stage_count);
    for (const Value& value : effect.write) {
      const size_t before = names_.size();
      const int32_t id = names.number(value);
      write_.push_back(id);
      if (names_.size() == before) {
        if (double_writer_ < 0) double_writer_ = static_cast<int32_t>(write_first_.size()) - 1;
        continue;
      }
      recv_lane_.push_back(op.kind == OpKind::Recv ? lane_[write_first_.size() - 1] : -1);
      note_whole(value, id);
    }
  }
  write_first_.push_back(static_cast<int32_t>(write_.size()));
  const auto note = [&](const Value& value, std::vector<int32_t>& ids) {
    if (!means_every(value)) {
      ids.push_back(names.number(value));
      return;
    }
    const auto& every = value.kind == ValueKind::Partial ? partials : totals;
    const auto found = every.find(value.stage);
    if (found != every.end()) ids.insert(ids.end(), found->second.begin(), found->second.end());
  };
  missing_.reserve(count);
  for (const Op& op : list_) {
    const Effect effect = effect_of(op, stage_count);
    read_first_.push_back(static_cast<int32_t>(read_.size()));
    free_first_.push_back(static_cast<int32_t>(free_.size()));
    for (const Value& value : effect.read) note(value, read_);
    for (const Value& value : effect.free) note(value, free_);
    missing_.push_back(static_cast<int32_t>(read_.size()) - read_first_.back());
  }
  read_first_.push_back(static_cast<int32_t>(read_.size()));
  free_first_.push_back(static_cast<int32_t>(free_.size()));
  recv_lane_.resize(names_.size(), -1);
  sends_.assign(names_.size(), 0);
  freed_late_.assign(names_.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    if (list_[i].kind != OpKind::Send || free_first_[i] < free_first_[i + 1]) continue;
    for (int32_t k = read_first_[i]; k < read_first_[i + 1]; ++k) ++sends_[at(read_[at(k)])];
  }
  std::vector<uint8_t> used(names_.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    for (int32_t k = free_first_[i]; k < free_first_[i + 1]; ++k) {
      uint8_t& before = used[at(free_[at(k)])];
      if (before != 0 && double_reader_ < 0) double_reader_ = static_cast<int32_t>(i);
      before = 1;
    }
  }
  present_.assign(names_.size(), 0);
  freed_.reserve(names_.size());
}

// Lists the readers of each value, from the values that each op reads.
void Walk::index_readers() {
  reader_first_.assign(names_.size() + 1, 0);
  for (const int32_t id : read_) ++reader_first_[at(id) + 1];
  for (size_t id = 0; id < names_.size(); ++id) reader_first_[id + 1] += reader_first_[id];
  reader_.resize(read_.size());
  std::vector<int32_t> end(reader_first_.begin(), reader_first_.end() - 1);
  for (size_t i = 0; i < list_.size(); ++i) {
    for (int32_t k = read_first_[i]; k < read_first_[i + 1]; ++k) {
      reader_[at(end[at(read_[at(k)])]++)] = static_cast<int32_t>(i);
    }
  }
}

// Marks the values that are stored before the list begins as present.
void Walk::store(std::span<const Value> stored) {
  int32_t whole = 0, late = 0;
  for (int32_t id = 0; id < stored_count_; ++id) {
    whole += stored[at(id)].kind == ValueKind::Stash ? 1 : 0;
    late += stored[at(id)].kind == ValueKind::WeightWork ? 1 : 0;
    present_[at(id)] = 1;
    for (int32_t k = reader_first_[at(id)]; k < reader_first_[at(id) + 1]; ++k) {
      --missing_[at(reader_[at(k)])];
    }
  }
  compute_.hold({whole, late});
}

void Walk::insert_offer(int32_t index, int32_t lane_index) {
  state_[at(index)] = State::Offered;
  auto place = offers_.end();
  while (place != offers_.begin()) {
    const int32_t before = *(place - 1);
    const int32_t before_lane = lane_[at(before)];
    if (before_lane < lane_index || (before_lane == lane_index && before < index)) break;
    --place;
  }
  offers_.insert(place, index);
}

void Walk::remove_offer(int32_t index) {
  offers_.erase(std::find(offers_.begin(), offers_.end(), index));
}

// Offers the ops of this lane that can start; not for the compute lane.
void Walk::offer_from(Lane& lane, int32_t lane_index) {
  if (is_recv(lane.kind)) {
    while (lane.next < lane.end && lane.granted < lane.buffers) {
      insert_offer(lane_ops_[at(lane.next++)], lane_index);
      ++lane.granted;
    }
    return;
  }
  if (lane.busy || lane.next == lane.end) return;
  const int32_t index = lane_ops_[at(lane.next)];
  if (missing_[at(index)] == 0 && state_[at(index)] == State::Waiting) {
    insert_offer(index, lane_index);
  }
}

std::span<const int32_t> Walk::startable() {
  startable_.clear();
  const int32_t candidate = compute_candidate();
  if (candidate >= 0) startable_.push_back(candidate);
  startable_.insert(startable_.end(), offers_.begin(), offers_.end());
  return startable_;
}

void Walk::start(int32_t index) {
  CHECK(index >= 0 && at(index) < list_.size(), "start: no such op");
  Lane& lane = lanes_[at(lane_[at(index)])];
  if (lane.kind == LaneKind::Compute) {
    CHECK(index == compute_candidate(), "start: the op is not startable");
    compute_.begin(index);
  } else {
    CHECK(state_[at(index)] == State::Offered, "start: the op is not startable");
    remove_offer(index);
    if (!is_recv(lane.kind)) ++lane.next;
    if (lane.kind == LaneKind::Reduce) {
      lane.busy = true;
    } else {
      offer_from(lane, lane_[at(index)]);
    }
  }
  state_[at(index)] = State::Started;
}

// The value is here now: its readers miss one thing less.
void Walk::appear(int32_t value) {
  if (present_[at(value)] != 0) return;
  present_[at(value)] = 1;
  for (int32_t k = reader_first_[at(value)]; k < reader_first_[at(value) + 1]; ++k) {
    const int32_t reader = reader_[at(k)];
    if (--missing_[at(reader)] == 0 && lane_[at(reader)] != 0) {
      offer_from(lanes_[at(lane_[at(reader)])], lane_[at(reader)]);
    }
  }
}

// The value is gone: readers that have not started miss it again (only in a faulty list), and the
// buffer that it came in takes the next message.
void Walk::vanish(int32_t value) {
  if (present_[at(value)] == 0) return;
  present_[at(value)] = 0;
  freed_.push_back(names_[at(value)]);
  for (int32_t k = reader_first_[at(value)]; k < reader_first_[at(value) + 1]; ++k) {
    const int32_t reader = reader_[at(k)];
    ++missing_[at(reader)];
    if (state_[at(reader)] != State::Offered) continue;
    remove_offer(reader);
    state_[at(reader)] = State::Waiting;
  }
  if (recv_lane_[at(value)] < 0) return;
  Lane& lane = lanes_[at(recv_lane_[at(value)])];
  --lane.granted;
  offer_from(lane, recv_lane_[at(value)]);
}

std::span<const Value> Walk::finish(int32_t index) {
  CHECK(index >= 0 && at(index) < list_.size(), "finish: no such op");
  CHECK(state_[at(index)] == State::Started, "finish: the op has not started");
  state_[at(index)] = State::Ended;
  ++ended_;
  freed_.clear();
  for (int32_t k = write_first_[at(index)]; k < write_first_[at(index) + 1]; ++k) {
    appear(write_[at(k)]);
  }
  if (list_[at(index)].kind == OpKind::Send) end_sends(index);
  for (int32_t k = free_first_[at(index)]; k < free_first_[at(index) + 1]; ++k) {
    const int32_t value = free_[at(k)];
    if (sends_[at(value)] == 0) {
      vanish(value);
    } else {
      freed_late_[at(value)] = 1;
    }
  }
  Lane& lane = lanes_[at(lane_[at(index)])];
  if (lane.kind == LaneKind::Compute) {
    compute_.end(list_[at(index)].kind);
  } else if (lane.kind == LaneKind::Reduce) {
    lane.busy = false;
    offer_from(lane, lane_[at(index)]);
  }
  return freed_;
}

// If a value was freed before its last send ended, it vanishes when that send ends.
void Walk::end_sends(int32_t index) {
  for (int32_t k = read_first_[at(index)]; k < read_first_[at(index) + 1]; ++k) {
    const int32_t value = read_[at(k)];
    if (sends_[at(value)] == 0 || --sends_[at(value)] > 0) continue;
    if (freed_late_[at(value)] != 0) vanish(value);
  }
}

bool Walk::waits_only_for(int32_t reader, int32_t writer) const {
  const int32_t missing = missing_[at(reader)];
  const int32_t first = write_first_[at(writer)], end = write_first_[at(writer) + 1];
  if (state_[at(reader)] != State::Waiting || missing == 0 || missing > end - first) return false;
  int32_t written = 0;
  for (int32_t k = first; k < end; ++k) {
    if (present_[at(write_[at(k)])] != 0) continue;
    written += static_cast<int32_t>(std::count(read_.begin() + read_first_[at(reader)],
                                               read_.begin() + read_first_[at(reader) + 1],
                                               write_[at(k)]));
  }
  return written == missing;
}

std::vector<int32_t> Walk::waiting() const {
  std::vector<int32_t> heads;
  if (!compute_.busy() && compute_candidate() < 0) compute_.heads(heads);
  for (size_t lane = 1; lane < lanes_.size(); ++lane) {
    const Lane& it = lanes_[lane];
    if (it.busy || it.next == it.end) continue;
    const int32_t index = lane_ops_[at(it.next)];
    if (state_[at(index)] == State::Waiting) heads.push_back(index);
  }
  return heads;
}

std::vector<Value> Walk::missing(int32_t index) const {
  std::vector<Value> values;
  for (int32_t k = read_first_[at(index)]; k < read_first_[at(index) + 1]; ++k) {
    if (present_[at(read_[at(k)])] == 0) values.push_back(names_[at(read_[at(k)])]);
  }
  return values;
}

std::vector<Value> Walk::stored() const {
  std::vector<Value> values;
  for (size_t id = 0; id < names_.size(); ++id) {
    if (present_[id] != 0) values.push_back(names_[id]);
  }
  return values;
}

}  // namespace tenuto
