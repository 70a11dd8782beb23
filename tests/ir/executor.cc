#include "ir/executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "ir/effect.h"
#include "ir/text.h"

namespace tenuto {

namespace {

bool every(const Value& value) {
  return (value.kind == ValueKind::Partial && value.micro.value < 0) ||
         (value.kind == ValueKind::Total && value.part < 0);
}

// A row of ops that one thread runs. Receives are posted ahead, so their lane takes any of them
// whose message has come.
struct Lane {
  size_t worker = 0;
  bool receives = false;
  std::vector<Op> ops;   // what is left, next one first
  bool joined = false;   // its next op, a Reduce, waits for the other members
  bool waiting = false;  // blocked, and not called yet
  std::condition_variable called;
};

// One worker.
struct Station {
  std::vector<Lane*> lanes;
  std::set<Value> store, made;
  std::map<std::pair<ValueKind, StageId>, std::vector<Value>> all;  // what "every" stands for
  Limit limit;
  int32_t held = 0, forwards = 0, all_forwards = 0;
  int32_t whole = 0;  // of those held: the input gradient has not ended
};

class Run {
 public:
  Run(const Plan& plan, uint64_t seed) : plan_(plan), random_(seed) {
    stations_.resize(plan.schedule.lists.size());
    std::map<std::tuple<size_t, int, WorkerId>, Lane*> lanes;
    for (size_t w = 0; w < stations_.size(); ++w) {
      if (w < plan.limits.size()) stations_[w].limit = plan.limits[w];
      for (const Op& op : plan.schedule.lists[w]) {
        Lane*& lane = lanes[lane_key(w, op)];
        if (lane == nullptr) {
          lanes_.push_back(std::make_unique<Lane>());
          lane = lanes_.back().get();
          lane->worker = w;
          lane->receives = op.kind == OpKind::Recv;
          stations_[w].lanes.push_back(lane);
        }
        lane->ops.push_back(op);
        stations_[w].all_forwards += op.kind == OpKind::Forward ? 1 : 0;
        for (const Value& value : effect_of(op, plan.schedule.stage_count).write) {
          stations_[w].all[{value.kind, value.stage}].push_back(value);
        }
      }
    }
    awake_ = lanes_.size();
  }

  Judgement run() {
    std::vector<std::thread> threads;
    for (const auto& lane : lanes_) threads.emplace_back([this, &lane] { serve(*lane); });
    for (std::thread& thread : threads) thread.join();
    if (judgement_.ending == Ending::Right) judge_work();
    return judgement_;
  }

 private:
  // Ops of one worker with the same key share a lane.
  std::tuple<size_t, int, WorkerId> lane_key(size_t worker, const Op& op) const {
    const bool down = op.moved == ValueKind::Activation || op.moved == ValueKind::ClipDecision;
    if (op.kind == OpKind::Send) return {worker, down ? 0 : 1, op.peer};
    if (op.kind == OpKind::Recv) return {worker, down ? 2 : 3, op.peer};
    if (op.kind == OpKind::Reduce) return {worker, 4, {}};
    if (op.kind == OpKind::Validate) return {worker, 10, {}};
    if (plan_.dispatch == Dispatch::Listed) return {worker, 5, {}};
    // Under ready dispatch any of these kinds may run next: the rule's choice is one of them.
    if (op.kind == OpKind::Forward) return {worker, 6, {}};
    if (op.kind == OpKind::BackwardInput) return {worker, 7, {}};
    if (op.kind == OpKind::BackwardWeight) return {worker, 8, {}};
    return {worker, 9, {}};
  }

  // A lane's thread. It holds the lock except while it is blocked or holds back.
  void serve(Lane& lane) {
    std::unique_lock lock(mutex_);
    while (!lane.ops.empty() && !over_) {
      if (random_.below(4) == 0) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
        continue;
      }
      const int next = able(lane);
      if (next >= 0) {
        perform(lane, static_cast<size_t>(next));
        continue;
      }
      lane.waiting = true;
      rest();
      const auto limit = std::chrono::seconds(60);  // reached only by a bug of this executor
      if (!lane.called.wait_for(lock, limit, [&] { return !lane.waiting || over_; })) {
        end(Ending::Hangs, "nothing happened for a minute");
      }
    }
    if (!over_) rest();
  }

  // One thread less is awake. If it was the last one, no thread can call the others: they hang.
  void rest() {
    if (--awake_ > 0) return;
    for (const auto& lane : lanes_) {
      if (!lane->ops.empty()) end(Ending::Hangs, "stuck at " + to_text(lane->ops.front()));
    }
  }

  void end(Ending ending, const std::string& fault) {
    if (over_) return;
    over_ = true;
    judgement_ = {ending, fault};
    for (const auto& lane : lanes_) lane->called.notify_all();
  }

  // Called when something has changed at this worker: wakes its lanes that can go on.
  void call(size_t worker) {
    for (Lane* lane : stations_[worker].lanes) {
      if (!lane->waiting || (!lane->ops.empty() && able(*lane) < 0)) continue;
      lane->waiting = false;
      ++awake_;
      lane->called.notify_all();
    }
  }

  bool is_here(const Station& station, const Value& read) const {
    if (!every(read)) return station.store.count(read) > 0;
    const auto all = station.all.find({read.kind, read.stage});
    return all == station.all.end() ||
           std::all_of(all->second.begin(), all->second.end(),
                       [&](const Value& value) { return station.store.count(value) > 0; });
  }

  // The op of this lane that can run now, or -1.
  int able(const Lane& lane) const {
    if (lane.joined) return -1;
    for (size_t i = 0; i < lane.ops.size(); ++i) {
      if (can_run(lane, lane.ops[i])) return static_cast<int>(i);
      if (!lane.receives) break;
    }
    return -1;
  }

  bool can_run(const Lane& lane, const Op& op) const {
    const Station& station = stations_[lane.worker];
    if (op.kind == OpKind::Recv) {
      return wire_.count({op.peer, {static_cast<int32_t>(lane.worker)}, moved_value(op)}) > 0;
    }
    for (const Value& read : effect_of(op, plan_.schedule.stage_count).read) {
      if (!is_here(station, read)) return false;
    }
    return plan_.dispatch == Dispatch::Listed || allowed(station, op);
  }

  // True when the op is within the limits. Ready dispatch waits for this; fixed lists must keep it.
  static bool allowed(const Station& station, const Op& op) {
    const Limit& limit = station.limit;
    if (op.kind == OpKind::Forward) {
      const MemoryLimit& memory = limit.memory;
      const int64_t late = station.held - station.whole;
      return (limit.micros == 0 || station.held < limit.micros) &&
             (memory.most == 0 ||
              memory.whole * (station.whole + 1) + memory.late * late <= memory.most);
    }
    return op.kind != OpKind::BackwardInput ||
           station.forwards >= std::min(limit.warm_up, station.all_forwards);
  }

  void perform(Lane& lane, size_t place) {
    const Op op = lane.ops[place];
    if (op.kind != OpKind::Reduce) {
      lane.ops.erase(lane.ops.begin() + static_cast<std::ptrdiff_t>(place));
      apply(lane.worker, op);
      return;
    }
    const Group& group = plan_.schedule.groups[at(op.group.value)];
    const auto& holders = plan_.stages[at(op.stage.value)].holders;
    const WorkerId self{static_cast<int32_t>(lane.worker)};
    if (std::count(group.stages.begin(), group.stages.end(), op.stage) == 0 ||
        std::count(group.members.begin(), group.members.end(), self) == 0 ||
        std::count(holders.begin(), holders.end(), self) == 0) {
      return end(Ending::Work, "a sum that is not of this group: " + to_text(op));
    }
    lane.joined = true;
    auto& joined = joined_[op.group];
    joined.push_back(&lane);
    for (const WorkerId member : group.members) {
      const bool there = std::any_of(joined.begin(), joined.end(), [&](const Lane* other) {
        return other->worker == at(member.value);
      });
      if (!there) return;
    }
    for (Lane* other : std::exchange(joined, {})) {
      const Op theirs = other->ops.front();
      other->ops.erase(other->ops.begin());
      other->joined = false;
      apply(other->worker, theirs);
    }
  }

  // Records that the op has run: what it wrote and freed, and what it counts for.
  void apply(size_t worker, const Op& op) {
    Station& station = stations_[worker];
    const WorkerId self{static_cast<int32_t>(worker)};
    keep_rules(station, self, op);
    if (op.kind == OpKind::Send && !wire_.insert({self, op.peer, moved_value(op)}).second) {
      end(Ending::Work, "sent twice: " + to_text(op));
    }
    if (op.kind == OpKind::Recv) wire_.erase({op.peer, self, moved_value(op)});
    if (op.kind == OpKind::Reduce) {
      reduced_.insert({self, op.stage});
    } else if (op.kind != OpKind::Send && op.kind != OpKind::Recv) {
      done_kinds_.insert(op.kind);
      done_[{op.kind, op.stage, op.micro, op.micro.value < 0 ? self : WorkerId{}}].push_back(self);
    }
    const Effect effect = effect_of(op, plan_.schedule.stage_count);
    for (const Value& value : effect.write) {
      if (!station.made.insert(value).second) end(Ending::Work, "made twice: " + to_text(value));
      station.store.insert(value);
    }
    for (const Value& free : effect.free) {
      if (!every(free)) {
        station.store.erase(free);
        continue;
      }
      for (const Value& value : station.all[{free.kind, free.stage}]) station.store.erase(value);
    }
    call(worker);
    if (op.kind == OpKind::Send) call(at(op.peer.value));
  }

  void keep_rules(Station& station, WorkerId self, const Op& op) {
    if (!allowed(station, op)) end(Ending::Rules, "beyond its limit: " + to_text(op));
    if (op.kind == OpKind::Forward) ++station.held, ++station.whole, ++station.forwards;
    if (op.kind == OpKind::BackwardInput) --station.whole;
    if (op.kind == OpKind::BackwardWeight) --station.held;
    const bool summed = op.kind == OpKind::BackwardWeight ||
                        (op.kind == OpKind::BackwardInput && !plan_.split_backward);
    if (!summed || plan_.dispatch == Dispatch::Listed) return;
    const auto [last, fresh] = last_.try_emplace({op.kind, self, op.stage}, op.micro);
    if (!fresh && op.micro < last->second) end(Ending::Rules, "out of order: " + to_text(op));
    last->second = op.micro;
  }

  // Every lane is at its end: compares what was done with what a step must do.
  void judge_work() {
    for (const Station& station : stations_) {
      for (const Value& value : station.store) {
        if (value.kind != ValueKind::Norm && value.kind != ValueKind::ClipDecision) {
          return end(Ending::Work, "left over: " + to_text(value));
        }
      }
    }
    if (!wire_.empty()) return end(Ending::Work, "a message that nobody takes");
    const bool ahead = done_kinds_.contains(OpKind::StepAhead);
    const std::vector<OpKind> updates =
        ahead ? std::vector{OpKind::MeasureAhead, OpKind::StepAhead, OpKind::Validate}
              : std::vector{OpKind::Measure, OpKind::Step};
    for (const OpKind kind : {OpKind::Measure, OpKind::Step, OpKind::MeasureAhead,
                              OpKind::StepAhead, OpKind::Validate}) {
      const bool wanted = std::find(updates.begin(), updates.end(), kind) != updates.end();
      if (!wanted && done_kinds_.contains(kind)) return end(Ending::Work, "two kinds of update");
    }
    for (int32_t s = 0; s < plan_.schedule.stage_count; ++s) {
      for (int32_t m = 0; m < plan_.schedule.micro_count; ++m) judge_micro({s}, {m});
      for (const WorkerId holder : plan_.stages[at(s)].holders) {
        for (const OpKind kind : updates) {
          const auto found = done_.find({kind, {s}, {}, holder});
          if (found == done_.end() || found->second.size() != 1) {
            return end(Ending::Work, "lost or doubled update");
          }
        }
        if (reduced_.count({holder, {s}}) == 0) {
          return end(Ending::Work, "a gradient that is not reduced");
        }
      }
    }
  }

  void judge_micro(StageId stage, MicroId micro) {
    std::set<WorkerId> owners;
    for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
      const auto found = done_.find({kind, stage, micro, {}});
      if (found == done_.end() || found->second.size() != 1) {
        return end(Ending::Work, "lost or doubled work");
      }
      owners.insert(found->second.begin(), found->second.end());
    }
    if (owners.size() != 1) return end(Ending::Work, "scattered work");
  }

  static size_t at(int32_t index) { return static_cast<size_t>(index); }

  const Plan& plan_;
  std::vector<std::unique_ptr<Lane>> lanes_;

  std::mutex mutex_;  // guards all that follows, and the lanes
  Random random_;
  std::vector<Station> stations_;
  std::set<std::tuple<WorkerId, WorkerId, Value>> wire_;
  std::map<GroupId, std::vector<Lane*>> joined_;
  std::map<std::tuple<OpKind, StageId, MicroId, WorkerId>, std::vector<WorkerId>> done_;
  std::set<OpKind> done_kinds_;
  std::set<std::pair<WorkerId, StageId>> reduced_;
  std::map<std::tuple<OpKind, WorkerId, StageId>, MicroId> last_;
  size_t awake_ = 0;
  bool over_ = false;
  Judgement judgement_;
};

}  // namespace

Judgement run_in_threads(const Plan& plan, uint64_t seed) { return Run(plan, seed).run(); }

}  // namespace tenuto
