#include "sim/listed.h"

#include <algorithm>
#include <map>

#include "ir/compute_lane.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

constexpr Duration kNotYet{-1};
constexpr int32_t kStarted = -1;  // in place of a message's count of missing values

bool sends(LaneKind kind) {
  return kind == LaneKind::SendForward || kind == LaneKind::SendBackward;
}
bool receives(LaneKind kind) {
  return kind == LaneKind::RecvForward || kind == LaneKind::RecvBackward;
}

// The progress of a lane of messages or reductions through its ops. An instance is one op in one of
// the priced steps; its number is step x ops + op.
struct Way {
  int32_t next = -1;
  int32_t granted = 0;
  bool busy = false;
  Duration free_at{};
  Link link;
  Bytes last_size{-1};
  Duration last_time{};
};

class Lists {
 public:
  Lists(const Program& program, const Plan& plan, const Schedule& schedule, const Tariff& tariff,
        const PriceOptions& options)
      : program_(program),
        schedule_(schedule),
        tariff_(tariff),
        options_(options),
        steps_(std::max(options.steps, 1)),
        no_ports_(tariff.cluster()) {
    result_.start.assign(at(int64_t{program.size()} * steps_), Duration{});
    result_.finish.assign(result_.start.size(), kNotYet);
    missing_.reserve(result_.start.size());
    for (int32_t step = 0; step < steps_; ++step) {
      missing_.insert(missing_.end(), program.missing().begin(), program.missing().end());
    }
    at_group_.resize(schedule.groups.size() * at(steps_));
    for (size_t w = 0; w < schedule.lists.size(); ++w) {
      compute_.emplace_back(schedule.lists[w], plan.dispatch, Limit{}, keep_of(plan, options));
    }
    free_at_.assign(compute_.size(), Duration{});
    begun_.assign(compute_.size(), 0);
    held_.assign(compute_.size(), {});
    awake_.assign(compute_.size(), 0);
    for (const Program::Lane& lane : program.lanes()) {
      Way& way = ways_.emplace_back();
      if (lane.kind != LaneKind::Compute) way.next = lane.head;
      if (sends(lane.kind)) way.link = tariff.cluster().link({lane.worker}, {lane.peer});
    }
  }

  Outcome run() {
    for (size_t lane = 0; lane < ways_.size(); ++lane) {
      advance(static_cast<int32_t>(lane), Duration{});
    }
    for (size_t w = compute_.size(); w-- > 0;) wake(static_cast<int32_t>(w));
    while (!stack_.empty()) {
      const int32_t worker = stack_.back();
      stack_.pop_back();
      awake_[at(worker)] = 0;
      go(worker);
    }
    for (size_t w = 0; w < compute_.size(); ++w) {
      result_.peak_micros.push_back(held_[w].most);
    }
    if (options_.bytes) note_bytes(program_, tariff_, result_);
    if (result_.ended < program_.kept() * steps_) {
      result_.waiting = heads_of(program_, compute_, [&](size_t lane) {
        return ways_[lane].next < 0 ? -1 : op_of(ways_[lane].next);
      });
    }
    return std::move(result_);
  }

 private:
  struct Held {
    int32_t whole = 0, late = 0;
    double most = 0;
  };

  int32_t op_of(int32_t instance) const {
    return steps_ == 1 ? instance : instance % program_.size();
  }
  // The next instance of the same lane, in this step or the next.
  int32_t next_after(int32_t instance) const {
    const int32_t op = op_of(instance), begun = instance - op;
    const int32_t next = program_.after_in_lane(op);
    if (next >= 0) return begun + next;
    const int32_t step = begun + program_.size();
    return at(step) == result_.start.size() ? -1
                                            : step + program_.lanes()[at(program_.lane(op))].head;
  }

  void wake(int32_t worker) {
    if (awake_[at(worker)] != 0) return;
    awake_[at(worker)] = 1;
    stack_.push_back(worker);
  }

  // Runs a worker's compute ops as far as their inputs are known.
  void go(int32_t worker) {
    ComputeLane& lane = compute_[at(worker)];
    const int32_t first = program_.first()[at(worker)];
    int32_t& begun = begun_[at(worker)];
    Duration free_at = free_at_[at(worker)];
    for (int32_t index = lane.candidate(missing_.data() + begun + first); index >= 0;
         index = lane.candidate(missing_.data() + begun + first)) {
      const int32_t op = first + index, instance = begun + op;
      lane.begin(index);
      Duration& start = result_.start[at(instance)];  // until now: when its inputs are there
      start = std::max(start, free_at);
      const Duration time = tariff_.time(op, worker);
      if (begun == 0) result_.busy = plus(result_.busy, time);
      free_at = plus(start, time);
      const OpKind kind = program_.classes()[at(program_.class_of(op))].kind;
      note_held(held_[at(worker)], kind);
      lane.end(kind);
      if (lane.done() && at(begun + program_.size()) < result_.start.size()) {
        begun += program_.size();
        lane.restart();
      }
      end(instance, free_at);
    }
    free_at_[at(worker)] = free_at;
  }

  void note_held(Held& held, OpKind kind) const {
    if (kind == OpKind::Forward) {
      ++held.whole;
      held.most = std::max(held.most, held.whole + options_.weight_share * held.late);
    }
    if (kind == OpKind::BackwardInput) --held.whole, ++held.late;
    if (kind == OpKind::BackwardWeight) --held.late;
  }

  // The instance ends at `finish`: its values reach their readers, and the receive buffer that it
  // frees can be used again.
  void end(int32_t instance, Duration finish) {
    result_.finish[at(instance)] = finish;
    ++result_.ended;
    const int32_t op = op_of(instance), begun = instance - op;
    for (int32_t e = program_.edge_of(op); e >= 0; e = program_.edge(e).next) {
      const int32_t reader = begun + program_.edge(e).to;
      result_.start[at(reader)] = std::max(result_.start[at(reader)], finish);
      if (--missing_[at(reader)] > 0) continue;
      const int32_t lane = program_.lane(program_.edge(e).to);
      const Program::Lane& where = program_.lanes()[at(lane)];
      if (where.kind == LaneKind::Compute) {
        wake(where.worker);
      } else {
        advance(lane, Duration{});
      }
    }
    const int32_t release = program_.release(op);
    if (release >= 0) {
      --ways_[at(release)].granted;
      advance(release, finish);
    }
  }

  // Starts what can start on a lane; a receive not before `from`, when its buffer came free.
  void advance(int32_t lane, Duration from) {
    Way& way = ways_[at(lane)];
    const LaneKind kind = program_.lanes()[at(lane)].kind;
    if (receives(kind)) {
      while (way.next >= 0 && way.granted < kReceivesAhead) {
        const int32_t recv = way.next;
        way.next = next_after(recv);
        if (program_.takes_buffer(op_of(recv))) ++way.granted;
        result_.start[at(recv)] = from;
        missing_[at(recv)] = kStarted;
        const int32_t send = partner_of(recv);
        if (missing_[at(send)] == kStarted) transfer(send, recv);
      }
      return;
    }
    while (!way.busy && way.next >= 0 && missing_[at(way.next)] == 0) {
      const int32_t instance = way.next;
      way.next = next_after(instance);
      way.busy = true;
      missing_[at(instance)] = kStarted;
      result_.start[at(instance)] = std::max(result_.start[at(instance)], way.free_at);
      if (kind == LaneKind::Reduce) {
        reduce(instance);
      } else if (missing_[at(partner_of(instance))] == kStarted) {
        transfer(instance, partner_of(instance));
      }
    }
  }

  // The other end of a message, in the same step.
  int32_t partner_of(int32_t instance) const {
    const int32_t op = op_of(instance);
    return instance - op + program_.partner(op);
  }

  // Both ends of the message are ready: it goes.
  void transfer(int32_t send, int32_t recv) {
    const int32_t lane = program_.lane(op_of(send));
    Way& way = ways_[at(lane)];
    const Bytes size = tariff_.moves(op_of(send));
    if (size != way.last_size) {
      way.last_size = size;
      way.last_time = transfer_time(size, way.link.bytes_per_second);
    }
    const Duration begin = std::max(result_.start[at(send)], result_.start[at(recv)]);
    const Duration out = plus(begin, way.last_time);
    result_.start[at(send)] = result_.start[at(recv)] = begin;
    way.free_at = out;
    way.busy = false;
    end(send, out);
    end(recv, plus(out, way.link.latency));
    advance(lane, Duration{});
  }

  void reduce(int32_t instance) {
    const int32_t op = op_of(instance), step = instance / program_.size();
    auto& waiting = at_group_[at(step) * schedule_.groups.size() + at(program_.op(op).group.value)];
    waiting.push_back(instance);
    for (const auto& [member, finish] :
         reduction_of(program_, schedule_, tariff_, waiting, result_.start, no_ports_)) {
      const int32_t lane = program_.lane(op_of(member));
      ways_[at(lane)].busy = false;
      ways_[at(lane)].free_at = finish;
      end(member, finish);
      advance(lane, Duration{});
    }
  }

  const Program& program_;
  const Schedule& schedule_;
  const Tariff& tariff_;
  const PriceOptions& options_;
  const int32_t steps_;
  PortSides no_ports_;
  Outcome result_;
  std::vector<int32_t> missing_;
  std::vector<ComputeLane> compute_;
  std::vector<Duration> free_at_;
  std::vector<int32_t> begun_;  // by worker: the first instance of the step that it is in
  std::vector<Held> held_;
  std::vector<Way> ways_;
  std::vector<std::vector<int32_t>> at_group_;
  std::vector<uint8_t> awake_;
  std::vector<int32_t> stack_;
};

}  // namespace

bool can_run_listed(const Program& program, const Plan& plan, const Tariff& tariff,
                    const PriceOptions& options) {
  if (plan.dispatch != Dispatch::Listed || options.staggered) return false;
  if (!tariff.cluster().ports.empty()) return false;  // lanes share them
  const bool half_duplex = tariff.cluster().half_duplex;
  for (const Op& kind : program.classes()) {
    if (kind.kind == OpKind::Validate) return false;  // starts when it can, not in list order
  }
  std::map<std::pair<int32_t, int32_t>, int32_t> lanes_of;
  for (const Program::Lane& lane : program.lanes()) {
    if (!sends(lane.kind)) continue;
    // Lanes can share a wire of unlimited rate, because messages do not occupy it. The lanes of
    // both directions share a half-duplex wire.
    const auto rate = [&](int32_t from, int32_t to) {
      return tariff.cluster().link({from}, {to}).bytes_per_second;
    };
    const bool busy =
        rate(lane.worker, lane.peer) > 0 || (half_duplex && rate(lane.peer, lane.worker) > 0);
    if (!busy) continue;
    std::pair ends(lane.worker, lane.peer);
    if (half_duplex && ends.first > ends.second) std::swap(ends.first, ends.second);
    if (++lanes_of[ends] > 1) return false;
  }
  for (int32_t op = 0; op < program.size(); ++op) {
    if (program.release(op) < 0) continue;
    if (program.lanes()[at(program.lane(op))].kind != LaneKind::Compute) return false;
  }
  return true;
}

Outcome run_listed(const Program& program, const Plan& plan, const Schedule& schedule,
                   const Tariff& tariff, const PriceOptions& options) {
  return Lists(program, plan, schedule, tariff, options).run();
}

}  // namespace tenuto
