#include "ir/executor.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/random.h"
#include "ir/effect.h"
#include "ir/text.h"

namespace tenuto {

namespace {

using Queue = std::vector<size_t>;  // places in a list, next one last

bool forward_message(ValueKind kind) {
  return kind == ValueKind::Activation || kind == ValueKind::Norm;
}

// One worker as the executor sees it.
struct Station {
  std::vector<Op> list;
  std::map<std::string, Queue> lanes;
  std::set<Value> store, made;
  int32_t held = 0, forwards = 0, all_forwards = 0;
};

class Executor {
 public:
  Executor(const Plan& plan, uint64_t seed) : plan_(plan), random_(seed) {
    for (const auto& list : plan.schedule.lists) {
      Station& station = stations_.emplace_back();
      station.list = list;
      for (size_t i = list.size(); i-- > 0;) station.lanes[lane_name(list[i], i)].push_back(i);
      for (const Op& op : list) station.all_forwards += op.kind == OpKind::Forward ? 1 : 0;
    }
  }

  std::string run() {
    while (fault_.empty()) {
      std::vector<std::pair<size_t, std::string>> able;
      for (size_t w = 0; w < stations_.size(); ++w) {
        for (const auto& [name, queue] : stations_[w].lanes) {
          if (!queue.empty() && can_start(w, stations_[w].list[queue.back()])) {
            able.emplace_back(w, name);
          }
        }
      }
      if (able.empty()) break;
      const auto& [worker, lane] =
          able[static_cast<size_t>(random_.below(static_cast<int64_t>(able.size())))];
      run_next(worker, lane);
    }
    return fault_.empty() ? verdict() : fault_;
  }

 private:
  std::string lane_name(const Op& op, size_t place) const {
    const std::string peer = std::to_string(op.peer.value);
    if (op.kind == OpKind::Send) return (forward_message(op.moved) ? "s>" : "s<") + peer;
    // Receives are posted ahead; the lists here are shorter than the buffers.
    if (op.kind == OpKind::Recv) return "r" + std::to_string(place);
    if (op.kind == OpKind::Reduce) return "reduce";
    if (plan_.dispatch == Dispatch::Listed) return "compute";
    switch (op.kind) {  // any lane that is able may go next: the rule's choice is one of them
      case OpKind::BackwardInput:
        return "compute b";
      case OpKind::BackwardWeight:
        return "compute w";
      case OpKind::Forward:
        return "compute f";
      default:
        return "compute u";
    }
  }

  static bool every(const Value& value) {
    return (value.kind == ValueKind::Partial && value.micro.value < 0) ||
           (value.kind == ValueKind::Total && value.part < 0);
  }
  static bool matches(const Value& pattern, const Value& value) {
    if (!every(pattern)) return pattern == value;
    return pattern.kind == value.kind && pattern.stage == value.stage;
  }

  // Everything that this read means in this list is in the store.
  bool here(const Station& station, const Value& read) const {
    if (!every(read)) return station.store.count(read) > 0;
    for (const Op& op : station.list) {
      for (const Value& value : effect_of(op, plan_.schedule.stage_count).write) {
        if (matches(read, value) && station.store.count(value) == 0) return false;
      }
    }
    return true;
  }

  bool can_start(size_t worker, const Op& op) {
    const Station& station = stations_[worker];
    for (const Value& read : effect_of(op, plan_.schedule.stage_count).read) {
      if (!here(station, read)) return false;
    }
    const Limit limit = worker < plan_.limits.size() ? plan_.limits[worker] : Limit{};
    if (plan_.dispatch == Dispatch::Ready) {
      if (op.kind == OpKind::Forward && limit.micros > 0 && station.held >= limit.micros) {
        return false;
      }
      if (op.kind == OpKind::BackwardInput &&
          station.forwards < std::min(limit.warm_up, station.all_forwards)) {
        return false;
      }
    }
    if (op.kind == OpKind::Recv) {
      return wire_.count({op.peer, WorkerId{static_cast<int32_t>(worker)}, moved_value(op)}) > 0;
    }
    if (op.kind != OpKind::Reduce) return true;
    for (const WorkerId member :
         plan_.schedule.groups[static_cast<size_t>(op.group.value)].members) {
      const Station& other = stations_[static_cast<size_t>(member.value)];
      const auto lane = other.lanes.find("reduce");
      if (lane == other.lanes.end() || lane->second.empty()) return false;
      const Op& theirs = other.list[lane->second.back()];
      if (theirs.group != op.group || theirs.part != op.part) return false;
      for (const Value& read : effect_of(theirs, plan_.schedule.stage_count).read) {
        if (!here(other, read)) return false;
      }
    }
    return true;
  }

  void run_next(size_t worker, const std::string& lane) {
    const Op op = stations_[worker].list[stations_[worker].lanes[lane].back()];
    if (op.kind != OpKind::Reduce) {
      apply(worker, lane);
      return;
    }
    for (const WorkerId member :
         plan_.schedule.groups[static_cast<size_t>(op.group.value)].members) {
      apply(static_cast<size_t>(member.value), lane);
    }
  }

  void apply(size_t worker, const std::string& lane) {
    Station& station = stations_[worker];
    const Op op = station.list[station.lanes[lane].back()];
    station.lanes[lane].pop_back();
    const WorkerId self{static_cast<int32_t>(worker)};
    if (op.kind == OpKind::Send && !wire_.insert({self, op.peer, moved_value(op)}).second) {
      fault_ = "sent twice";
    }
    if (op.kind == OpKind::Recv) wire_.erase({op.peer, self, moved_value(op)});
    if (op.kind == OpKind::Forward) ++station.held, ++station.forwards;
    if (op.kind == OpKind::BackwardWeight) --station.held;
    const bool ordered = plan_.dispatch == Dispatch::Ready &&
                         (op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput ||
                          op.kind == OpKind::BackwardWeight);
    if (ordered) {
      const auto [last, fresh] = last_.try_emplace({op.kind, self, op.stage}, op.micro);
      if (!fresh && op.micro < last->second) fault_ = "out of order: " + to_text(op);
      last->second = op.micro;
    }
    if (op.kind != OpKind::Send && op.kind != OpKind::Recv && op.kind != OpKind::Reduce) {
      done_[{op.kind, op.stage, op.micro, op.micro.value < 0 ? self : WorkerId{}}].push_back(self);
    }
    if (op.kind == OpKind::Reduce) reduced_[{self, op.stage}].push_back(op.part);
    const Effect effect = effect_of(op, plan_.schedule.stage_count);
    for (const Value& value : effect.write) {
      if (!station.made.insert(value).second) fault_ = "made twice: " + to_text(value);
      station.store.insert(value);
    }
    for (const Value& free : effect.free) {
      for (auto it = station.store.begin(); it != station.store.end();) {
        it = matches(free, *it) ? station.store.erase(it) : std::next(it);
      }
    }
  }

  // What was done, against what a step is.
  std::string verdict() const {
    for (const Station& station : stations_) {
      for (const auto& [name, queue] : station.lanes) {
        if (!queue.empty()) return "stuck at " + to_text(station.list[queue.back()]);
      }
      for (const Value& value : station.store) {
        if (value.kind != ValueKind::Verdict) return "left over: " + to_text(value);
      }
    }
    if (!wire_.empty()) return "a message that nobody takes";
    for (int32_t s = 0; s < plan_.schedule.stage_count; ++s) {
      for (int32_t m = 0; m < plan_.schedule.micro_count; ++m) {
        std::set<WorkerId> owners;
        for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
          const auto found = done_.find({kind, {s}, {m}, {}});
          if (found == done_.end() || found->second.size() != 1) return "lost or doubled work";
          owners.insert(found->second.begin(), found->second.end());
        }
        if (owners.size() != 1) return "scattered work";
      }
      for (const WorkerId holder : plan_.stages[static_cast<size_t>(s)].holders) {
        for (const OpKind kind : {OpKind::Measure, OpKind::Step}) {
          const auto found = done_.find({kind, {s}, {}, holder});
          if (found == done_.end() || found->second.size() != 1) return "lost or doubled update";
        }
        if (reduced_.count({holder, {s}}) == 0) return "a gradient that is not reduced";
      }
    }
    return "";
  }

  const Plan& plan_;
  Random random_;
  std::vector<Station> stations_;
  std::set<std::tuple<WorkerId, WorkerId, Value>> wire_;
  std::map<std::tuple<OpKind, StageId, MicroId, WorkerId>, std::vector<WorkerId>> done_;
  std::map<std::pair<WorkerId, StageId>, std::vector<int16_t>> reduced_;
  std::map<std::tuple<OpKind, WorkerId, StageId>, MicroId> last_;
  std::string fault_;
};

}  // namespace

std::string run_plainly(const Plan& plan, uint64_t seed) { return Executor(plan, seed).run(); }

}  // namespace tenuto
