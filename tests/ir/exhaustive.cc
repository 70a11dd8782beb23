#include "ir/exhaustive.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/effect.h"
#include "ir/pairing.h"
#include "ir/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The ops that have ended, one bit each. All else follows from them, because a worker posts
// receives and sends messages as soon as it can.
struct State {
  uint64_t low = 0, high = 0;
  bool operator==(const State&) const = default;
  void add(int32_t bit) { (bit < 64 ? low : high) |= uint64_t{1} << (bit % 64); }
};

struct Hash {
  size_t operator()(const State& state) const {
    uint64_t word = state.low * 0x9E3779B97F4A7C15ull ^ state.high * 0xC2B2AE3D27D4EB4Full;
    return static_cast<size_t>(word ^ (word >> 31));
  }
};

struct Place {
  int32_t worker = -1, index = -1;
};

// The step without the ops that only the update needs. Validation stays if the plan has one,
// because it runs in the compute lane before other ops.
Plan without_update(const Plan& plan) {
  Plan left = plan;
  left.evaluation = {};
  const bool ahead = plan.update.staggered;
  for (auto& list : left.schedule.lists) {
    std::erase_if(list,
                  [&](const Op& op) { return is_update(op) && !(ahead && is_validation(op)); });
  }
  return left;
}

class Search {
 public:
  Search(const Plan& plan, const Arrivals& arrivals, int64_t most_states)
      : plan_(without_update(plan)), arrivals_(arrivals), most_states_(most_states) {
    auto pairing = pair_messages(plan_.schedule);
    CHECK(pairing.ok(), pairing.ok() ? "" : pairing.error().message);
    pairing_ = std::move(pairing).value();
    const auto workers = static_cast<int32_t>(plan_.schedule.lists.size());
    for (int32_t w = 0; w < workers; ++w) {
      walks_.emplace_back(plan_, plan_.schedule, WorkerId{w}, arrivals.receives_ahead);
    }
    taken_.assign(walks_.size(), 0);
    number_bits();
    started_.assign(at(pairing_.first.back()), 0);
  }

  Endings run() {
    frames_.resize(at(bits_) + 2);
    frames_[0] = {};
    for (size_t w = 0; w < walks_.size(); ++w) start_messages(static_cast<int32_t>(w), 0);
    visit({}, 0, 0);
    endings_.states = static_cast<int64_t>(seen_.size());
    return endings_;
  }

 private:
  // The state that one event has changed, to restore it. Walks stay allocated between uses.
  struct Frame {
    std::vector<std::pair<int32_t, Walk>> walks;
    size_t used = 0;
    std::vector<int32_t> started;
    std::vector<int32_t> taken;
  };

  // Gives a bit to every op whose end is an event of its own: all but sends, which end when their
  // message leaves.
  void number_bits() {
    bit_.assign(at(pairing_.first.back()), -1);
    for (size_t w = 0; w < walks_.size(); ++w) {
      const auto& list = plan_.schedule.lists[w];
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind == OpKind::Send) continue;
        bit_[at(number({static_cast<int32_t>(w), static_cast<int32_t>(i)}))] = bits_++;
      }
    }
    CHECK(bits_ <= 128, "too many ops to search all their orders");
  }

  int32_t number(Place place) const { return pairing_.number({place.worker}, place.index); }
  Walk& walk(int32_t worker) { return walks_[at(worker)]; }

  // Saves the walk as it was before this event, once.
  void touch(int32_t worker, size_t depth) {
    Frame& frame = frames_[depth];
    for (size_t i = 0; i < frame.used; ++i) {
      if (frame.walks[i].first == worker) return;
    }
    if (frame.used == frame.walks.size()) {
      frame.walks.emplace_back(worker, walk(worker));
    } else {
      frame.walks[frame.used].first = worker;
      frame.walks[frame.used].second = walk(worker);
    }
    ++frame.used;
  }

  // Starts all sends and receives that a worker can start. A send whose receive is posted leaves.
  void start_messages(int32_t worker, size_t depth) {
    for (bool again = true; again;) {
      again = false;
      for (const int32_t index : walk(worker).startable()) {
        const Op op = walk(worker).op(index);
        if (!is_message(op)) continue;
        touch(worker, depth);
        walk(worker).start(index);
        const int32_t mine = number({worker, index});
        const int32_t other = pairing_.partner[at(mine)];
        started_[at(mine)] = 1;
        frames_[depth].started.push_back(mine);
        if (started_[at(other)] != 0) {
          leave(op.kind == OpKind::Send ? Place{worker, index}
                                        : Place{op.peer.value, pairing_.index_of(other)},
                depth);
        } else if (op.kind == OpKind::Send) {
          endings_.send_waits = true;
        }
        again = true;
        break;
      }
    }
  }

  // A message leaves its sender and is on its way.
  void leave(Place send, size_t depth) {
    touch(send.worker, depth);
    walk(send.worker).finish(send.index);
    start_messages(send.worker, depth);
  }

  // True for a receive whose message is on its way and may arrive.
  bool may_arrive(Place recv, const State& state) const {
    const int32_t mine = number(recv);
    const int32_t bit = bit_[at(mine)];
    const bool here = ((bit < 64 ? state.low : state.high) >> (bit % 64) & 1) != 0;
    if (here || started_[at(mine)] == 0 || started_[at(pairing_.partner[at(mine)])] == 0) {
      return false;
    }
    return arrivals_.first_come == 0 || taken_[at(recv.worker)] < arrivals_.first_come;
  }

  // Ends an op. A receive takes a shared buffer; an op that frees a received value gives one back.
  void finish(Place place, size_t depth) {
    const Op& op = walk(place.worker).op(place.index);
    int32_t places = op.kind == OpKind::Recv ? 1 : 0;
    for (const Value& value : walk(place.worker).finish(place.index)) {
      for (const Op& other : walk(place.worker).list()) {
        if (other.kind == OpKind::Recv && moved_value(other) == value) --places;
      }
    }
    taken_[at(place.worker)] += places;
    start_messages(place.worker, depth);
  }

  // Visits every state that can follow.
  void visit(State state, int32_t ended, size_t depth) {
    if (static_cast<int64_t>(seen_.size()) >= most_states_) {
      endings_.complete = false;
      return;
    }
    if (!seen_.insert(state).second) return;
    bool moved = false;
    for (int32_t w = 0; w < static_cast<int32_t>(walks_.size()); ++w) {
      const auto able = walk(w).startable();
      if (!able.empty() && !is_message(walk(w).op(able.front()))) {
        go({w, able.front()}, true, state, ended, depth + 1);
        moved = true;
      }
      const auto count = static_cast<int32_t>(walk(w).list().size());
      for (int32_t i = 0; i < count; ++i) {
        if (walk(w).op(i).kind != OpKind::Recv || !may_arrive({w, i}, state)) continue;
        go({w, i}, false, state, ended, depth + 1);
        moved = true;
      }
    }
    if (moved) return;
    if (ended == bits_) {
      endings_.ends = true;
    } else {
      note_standstill();
    }
  }

  void go(Place place, bool start, State state, int32_t ended, size_t depth) {
    Frame& frame = frames_[depth];
    frame.used = 0;
    frame.started.clear();
    frame.taken = taken_;
    touch(place.worker, depth);
    if (start) walk(place.worker).start(place.index);
    finish(place, depth);
    state.add(bit_[at(number(place))]);
    visit(state, ended + 1, depth);
    for (size_t i = 0; i < frame.used; ++i) walk(frame.walks[i].first) = frame.walks[i].second;
    for (const int32_t number : frame.started) started_[at(number)] = 0;
    taken_ = frame.taken;
  }

  void note_standstill() {
    if (endings_.stands_still) return;
    endings_.stands_still = true;
    for (size_t w = 0; w < walks_.size(); ++w) {
      endings_.where += "w" + std::to_string(w) + ":";
      for (const int32_t index : walks_[w].waiting()) {
        endings_.where += " " + to_text(walks_[w].op(index));
      }
      endings_.where += "\n";
    }
  }

  const Plan plan_;
  const Arrivals arrivals_;
  const int64_t most_states_;
  Pairing pairing_;
  std::vector<Walk> walks_;
  std::vector<int32_t> bit_;      // by number; -1 = a send
  std::vector<uint8_t> started_;  // messages, by number
  std::vector<int32_t> taken_;    // first-come buffers, by worker
  int32_t bits_ = 0;
  std::vector<Frame> frames_;  // by depth
  std::unordered_set<State, Hash> seen_;
  Endings endings_;
};

}  // namespace

Endings search_all(const Plan& plan, const Arrivals& arrivals, int64_t most_states) {
  return Search(plan, arrivals, most_states).run();
}

}  // namespace tenuto
