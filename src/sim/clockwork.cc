#include "sim/clockwork.h"

#include <algorithm>
#include <map>

#include "collective/growth.h"
#include "ir/compute_lane.h"
#include "ir/effect.h"
#include "sim/reduction_price.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

__extension__ using Wide = __int128;

constexpr Duration kNotYet{-1};

// The end of an op.
struct End {
  Duration time{};
  int32_t number = 0;
  bool operator<(const End& other) const {
    return time != other.time ? time < other.time : number < other.number;
  }
};

// A heap with four children a node: half the levels of a binary one, and a node's children share
// two cache lines. It holds one end for each op under way.
class Ends {
 public:
  bool empty() const { return heap_.empty(); }
  const End& top() const { return heap_.front(); }

  void push(End end) {
    size_t place = heap_.size();
    heap_.push_back(end);
    while (place > 0) {
      const size_t parent = (place - 1) / 4;
      if (!(end < heap_[parent])) break;
      heap_[place] = heap_[parent];
      place = parent;
    }
    heap_[place] = end;
  }

  End pop() {
    const End least = heap_.front();
    const End moved = heap_.back();
    heap_.pop_back();
    const size_t size = heap_.size();
    if (size == 0) return least;
    size_t place = 0;
    for (size_t child = 1; child < size; child = 4 * place + 1) {
      size_t best = child;
      for (size_t k = child + 1; k < std::min(child + 4, size); ++k) {
        if (heap_[k] < heap_[best]) best = k;
      }
      if (!(heap_[best] < moved)) break;
      heap_[place] = heap_[best];
      place = best;
    }
    heap_[place] = moved;
    return least;
  }

 private:
  std::vector<End> heap_;
};

// The progress of a lane through its ops. An instance is one op in one of the priced steps; its
// number is step x ops + op.
struct Way {
  int32_t next = -1;
  int32_t granted = 0;  // receive lanes: buffers in use
  int32_t wire = -1;    // send lanes
  bool busy = false;
  Link link;            // send lanes
  Bytes last_size{-1};  // the size whose transfer time is `last_time`
  Duration last_time{};
};

// What one worker holds.
struct Store {
  int32_t whole = 0, late = 0;  // micro-batches before and after their BackwardInput
  double most = 0;
};

class Clockwork {
 public:
  Clockwork(const Program& program, const Plan& plan, const Schedule& schedule,
            const Tariff& tariff, const PriceOptions& options)
      : program_(program),
        plan_(plan),
        schedule_(schedule),
        tariff_(tariff),
        options_(options),
        steps_(std::max(options.steps, 1)),
        ports_(tariff.cluster()),
        reduction_ports_(ports_) {
    const size_t instances = at(int64_t{program.size()} * steps_);
    result_.start.assign(instances, kNotYet);
    result_.finish.assign(instances, kNotYet);
    missing_.reserve(instances);
    for (int32_t step = 0; step < steps_; ++step) {
      missing_.insert(missing_.end(), program.missing().begin(), program.missing().end());
    }
    const size_t workers = schedule.lists.size();
    stores_.resize(workers);
    touched_.assign(workers, 0);
    step_of_.assign(workers, 0);
    at_group_.resize(schedule.groups.size() * at(steps_));
    set_compute_lanes();
    set_ways();
  }

  Outcome run() {
    for (size_t lane = 0; lane < ways_.size(); ++lane) advance(static_cast<int32_t>(lane));
    for (size_t w = 0; w < stores_.size(); ++w) touch(static_cast<int32_t>(w));
    for (;;) {
      // Messages first: what arrives now must be present when a compute op is chosen.
      while (!due_.empty()) {
        finishing_.swap(due_);
        for (const int32_t instance : finishing_) finish(instance);
        finishing_.clear();
      }
      dispatch();
      if (!due_.empty()) continue;
      if (ends_.empty()) break;
      now_ = ends_.top().time;
      while (!ends_.empty() && ends_.top().time == now_) due_.push_back(ends_.pop().number);
    }
    for (const Store& store : stores_) {
      result_.peak_micros.push_back(store.most);
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
  void set_compute_lanes();
  void set_ways();

  int32_t step_of(int32_t instance) const { return steps_ == 1 ? 0 : instance / program_.size(); }
  int32_t op_of(int32_t instance) const {
    return steps_ == 1 ? instance : instance % program_.size();
  }
  // The instance of another op of the same step.
  int32_t beside(int32_t instance, int32_t op) const {
    return steps_ == 1 ? op : instance - op_of(instance) + op;
  }
  bool started(int32_t instance) const { return result_.start[at(instance)] != kNotYet; }

  void touch(int32_t worker) {
    if (touched_[at(worker)] != 0) return;
    touched_[at(worker)] = 1;
    touched_list_.push_back(worker);
  }

  // Notes that the op ends at `time`.
  void end_at(int32_t instance, Duration time) {
    time = std::min(time, kLongestTime);
    result_.finish[at(instance)] = time;
    if (time == now_) {
      due_.push_back(instance);
    } else {
      ends_.push({time, instance});
    }
  }

  void dispatch() {
    for (const int32_t worker : touched_list_) {
      touched_[at(worker)] = 0;
      ComputeLane& lane = compute_[at(worker)];
      const int32_t base = step_of_[at(worker)] * program_.size() + program_.first()[at(worker)];
      const int32_t index = lane.candidate(missing_.data() + base);
      if (index < 0) continue;
      lane.begin(index);
      begin(worker, base + index);
    }
    touched_list_.clear();
  }

  // A compute op starts.
  void begin(int32_t worker, int32_t instance) {
    const int32_t op = op_of(instance);
    result_.start[at(instance)] = now_;
    Store& store = stores_[at(worker)];
    if (kind_of(op) == OpKind::Forward) {
      ++store.whole;
      store.most = std::max(store.most, store.whole + options_.weight_share * store.late);
    }
    const Duration time = tariff_.time(op);
    if (op == instance) result_.busy = plus(result_.busy, time);
    end_at(instance, now_ + time);
  }

  OpKind kind_of(int32_t op) const { return program_.classes()[at(program_.class_of(op))].kind; }

  void finish(int32_t instance) {
    ++result_.ended;
    const int32_t op = op_of(instance);
    const int32_t lane = program_.lane(op);
    const Program::Lane& where = program_.lanes()[at(lane)];
    for (int32_t e = program_.edge_of(op); e >= 0; e = program_.edge(e).next) {
      const int32_t reader = beside(instance, program_.edge(e).to);
      if (--missing_[at(reader)] > 0) continue;
      const int32_t its_lane = program_.lane(op_of(reader));
      if (program_.lanes()[at(its_lane)].kind == LaneKind::Compute) {
        touch(where.worker);
      } else {
        advance(its_lane);
      }
    }
    const int32_t release = program_.release(op);
    if (release >= 0) {
      --ways_[at(release)].granted;
      advance(release);
    }
    if (where.kind == LaneKind::Compute) {
      end_compute(where.worker, kind_of(op));
    } else if (where.kind == LaneKind::Reduce) {
      ways_[at(lane)].busy = false;
      advance(lane);
    }
  }

  void end_compute(int32_t worker, OpKind kind) {
    Store& store = stores_[at(worker)];
    if (kind == OpKind::BackwardInput) --store.whole, ++store.late;
    if (kind == OpKind::BackwardWeight) --store.late;
    ComputeLane& lane = compute_[at(worker)];
    lane.end(kind);
    if (lane.done() && step_of_[at(worker)] + 1 < steps_) {
      ++step_of_[at(worker)];
      lane.restart();
    }
    touch(worker);
  }

  // Starts what can start on a lane of messages or reductions.
  void advance(int32_t lane) {
    Way& way = ways_[at(lane)];
    const LaneKind kind = program_.lanes()[at(lane)].kind;
    if (kind == LaneKind::RecvForward || kind == LaneKind::RecvBackward) {
      while (way.next >= 0 && way.granted < kReceivesAhead) {
        const int32_t recv = way.next;
        way.next = next_after(recv);
        if (program_.takes_buffer(op_of(recv))) ++way.granted;
        result_.start[at(recv)] = now_;
        const int32_t send = beside(recv, program_.partner(op_of(recv)));
        if (started(send)) transfer(send, recv);
      }
      return;
    }
    while (!way.busy && way.next >= 0 && missing_[at(way.next)] == 0) {
      const int32_t instance = way.next;
      way.next = next_after(instance);
      result_.start[at(instance)] = now_;
      if (kind == LaneKind::Reduce) {
        way.busy = true;
        return reduce(instance);
      }
      const int32_t recv = beside(instance, program_.partner(op_of(instance)));
      if (started(recv)) transfer(instance, recv);
    }
  }

  // The next instance of the same lane, in this step or the next.
  int32_t next_after(int32_t instance) const {
    const int32_t op = op_of(instance);
    const int32_t next = program_.after_in_lane(op);
    if (next >= 0) return beside(instance, next);
    const int32_t step = step_of(instance) + 1;
    if (step == steps_) return -1;
    return step * program_.size() + program_.lanes()[at(program_.lane(op))].head;
  }

  // Both ends of the message are ready: it goes.
  void transfer(int32_t send, int32_t recv) {
    const int32_t op = op_of(send);
    Way& way = ways_[at(program_.lane(op))];
    const Bytes size = tariff_.moves(op);
    if (size != way.last_size) {
      way.last_size = size;
      way.last_time = transfer_time(size, way.link.bytes_per_second);
    }
    Duration& free_at = wire_free_at_[at(way.wire)];
    Duration begin = std::max(now_, free_at);
    if (!passed_.empty()) {
      const std::vector<int32_t>& sides = passed_[at(program_.lane(op))];
      begin = ports_.free_at(sides, begin);
      ports_.occupy(sides, size, begin);
    }
    const Duration out = plus(begin, way.last_time);
    free_at = out;
    result_.start[at(send)] = result_.start[at(recv)] = begin;
    end_at(send, out);
    end_at(recv, out + way.link.latency);
  }

  void reduce(int32_t instance);

  const Program& program_;
  const Plan& plan_;
  const Schedule& schedule_;
  const Tariff& tariff_;
  const PriceOptions& options_;
  const int32_t steps_;
  Outcome result_;
  std::vector<int32_t> missing_;
  std::vector<ComputeLane> compute_;
  std::vector<int32_t> step_of_;  // of each compute lane
  std::vector<Store> stores_;
  std::vector<Way> ways_;
  std::vector<Duration> wire_free_at_;
  PortSides ports_, reduction_ports_;           // of messages and of reductions
  std::vector<std::vector<int32_t>> passed_;    // sides of ports, by send lane; empty without ports
  std::vector<std::vector<int32_t>> at_group_;  // instances, by step and group
  Ends ends_;
  std::vector<int32_t> due_, finishing_;  // instances that end now
  std::vector<uint8_t> touched_;
  std::vector<int32_t> touched_list_;
  Duration now_{};
};

void Clockwork::set_compute_lanes() {
  compute_.reserve(stores_.size());
  for (size_t w = 0; w < stores_.size(); ++w) {
    compute_.emplace_back(schedule_.lists[w], plan_.dispatch,
                          w < plan_.limits.size() ? plan_.limits[w] : Limit{},
                          keep_of(plan_, options_));
    if (options_.stores == nullptr || options_.stores->empty()) continue;
    const auto stored = [&](ValueKind kind) {
      const auto& store = (*options_.stores)[w];
      return static_cast<int32_t>(std::count_if(store.begin(), store.end(),
                                                [&](const Value& it) { return it.kind == kind; }));
    };
    compute_.back().hold({stored(ValueKind::Stash), stored(ValueKind::WeightWork)});
  }
}

// A wire for each directed link in use; one for both directions when they share it.
void Clockwork::set_ways() {
  std::map<std::pair<int32_t, int32_t>, int32_t> wires;
  ways_.resize(program_.lanes().size());
  if (!ports_.empty()) passed_.resize(ways_.size());
  for (size_t i = 0; i < ways_.size(); ++i) {
    const Program::Lane& lane = program_.lanes()[i];
    if (lane.kind == LaneKind::Compute) continue;
    ways_[i].next = lane.head;
    if (lane.kind != LaneKind::SendForward && lane.kind != LaneKind::SendBackward) continue;
    ways_[i].link = tariff_.cluster().link({lane.worker}, {lane.peer});
    std::pair ends(lane.worker, lane.peer);
    if (tariff_.cluster().half_duplex && ends.first > ends.second)
      std::swap(ends.first, ends.second);
    const auto [place, fresh] = wires.try_emplace(ends, static_cast<int32_t>(wires.size()));
    ways_[i].wire = place->second;
    if (!passed_.empty()) passed_[i] = ports_.between({lane.worker}, {lane.peer});
  }
  wire_free_at_.assign(wires.size(), Duration{});
}

// The last member to come starts the reduction for all.
void Clockwork::reduce(int32_t instance) {
  const Op& op = program_.op(op_of(instance));
  auto& waiting = at_group_[at(step_of(instance)) * schedule_.groups.size() + at(op.group.value)];
  waiting.push_back(instance);
  for (const auto& [member, finish] :
       reduction_of(program_, schedule_, tariff_, waiting, result_.start, reduction_ports_)) {
    end_at(member, std::max(now_, finish));
  }
}

// True for the ops through which the whole pipeline waits for the norm.
bool is_norm(const Op& op) {
  return is_update(op) && op.kind != OpKind::Reduce && op.kind != OpKind::Step;
}

}  // namespace

bool (*keep_of(const Plan& plan, const PriceOptions& options))(const Op&) {
  if (!options.update) return [](const Op& op) { return !is_update(op); };
  if (options.staggered && !plan.update.staggered) return [](const Op& op) { return !is_norm(op); };
  return nullptr;
}

Tariff::Tariff(const Program& program, const Plan& plan, const Model& model, const Cluster& cluster,
               const PriceOptions& options)
    : program_(program), cluster_(cluster), per_op_(options.per_op), tied_(model.tied) {
  const Sizes sizes = sizes_of(model, plan.stages, options.weight_share);
  for (const Stage& stage : plan.stages) costs_.push_back(stage_cost(model, stage));
  const auto size_of = [&](const Value& value) {
    return means_every(value) ? Bytes{} : sizes.of[at(value.stage.value)][at(int(value.kind))];
  };
  for (const Op& op : program.classes()) {
    const Effect effect = effect_of(op, static_cast<int32_t>(plan.stages.size()));
    time_.push_back(op_time(op, plan, costs_));
    Bytes writes, frees;
    for (const Value& value : effect.write) writes = writes + size_of(value);
    for (const Value& value : effect.free) frees = frees + size_of(value);
    if (op.kind == OpKind::BackwardInput) {
      // Weight work is the part of the stash that stays: it takes no bytes beside the stash.
      const Bytes stays = size_of({ValueKind::WeightWork, -1, op.stage, op.micro});
      writes = writes - stays;
      frees = frees - stays;
    }
    if (op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput) {
      // If the stage recomputes, each of these two ops holds the whole stash while it runs.
      const Bytes rebuilt = costs_[at(op.stage.value)].rebuilt;
      writes = writes + rebuilt;
      frees = frees + rebuilt;
    }
    writes_.push_back(op.kind == OpKind::Send || op.kind == OpKind::Recv ? Bytes{} : writes);
    frees_.push_back(frees);
    moves_.push_back(is_message(op) ? sizes.of[at(op.stage.value)][at(int(op.moved))] : Bytes{});
  }
  if (model.sums_grow && options.update) find_growing(plan);
}

void Tariff::find_growing(const Plan& plan) {
  constexpr int64_t kParts = 1024;  // more than an all-reduce has slices that leave early
  for (size_t s = 0; s < costs_.size(); ++s) {
    Op last;
    last.kind = plan.split_backward ? OpKind::BackwardWeight : OpKind::BackwardInput;
    last.stage = {static_cast<int32_t>(s)};
    last_op_.push_back(op_time(last, plan, costs_));
  }
  for (const Group& group : plan.schedule.groups) {
    growing_.emplace_back();
    if (group.stages.size() != 1) continue;  // a tied weight
    SumGrowth growth;
    growth.elements = costs_[at(group.stages.front().value)].parameters.count /
                      static_cast<int64_t>(sizeof(float));
    for (int64_t p = std::min(kParts, growth.elements); p-- > 0;) {
      growth.parts.push_back(chunk_range(growth.elements, p, std::min(kParts, growth.elements)));
    }
    growing_.back() =
        collective_of_growth(plan.schedule.collectives[at(group.collective.value)], growth);
  }
}

std::vector<Duration> Tariff::grown_at(StageId stage, WorkerId worker, int32_t chunks,
                                       Duration at) const {
  const double speed = cluster_.workers[static_cast<size_t>(worker.value)].speed;
  const Duration took = at_speed(last_op_[static_cast<size_t>(stage.value)], speed);
  std::vector<Duration> all;
  for (int32_t c = 0; c < chunks; ++c) {
    all.push_back(std::max(Duration{}, at - took / chunks * c));
  }
  return all;
}

Bytes Tariff::reduces(const Op& op) const {
  return size_of_sum(costs_[at(op.stage.value)].parameters, tied_, op.part);
}

std::vector<std::pair<int32_t, Duration>> reduction_of(
    const Program& program, const Schedule& schedule, const Tariff& tariff,
    const std::vector<int32_t>& waiting, const std::vector<Duration>& start, PortSides& ports) {
  const Op& op = program.op(waiting.front() % program.size());
  const Group& group = schedule.groups[at(op.group.value)];
  if (waiting.size() < group.members.size()) return {};
  std::vector<Duration> starts;
  std::vector<std::pair<int32_t, Duration>> ends;
  for (const WorkerId member : group.members) {
    const auto there = std::find_if(waiting.begin(), waiting.end(), [&](int32_t it) {
      return program.worker(it % program.size()) == member.value;
    });
    CHECK(there != waiting.end(), "a group with a stranger");
    ends.emplace_back(*there, Duration{});
    starts.push_back(start[at(*there)]);
  }
  const Collective* const growing = op.part < 0 ? tariff.growing(op.group) : nullptr;
  std::vector<Duration> finishes;
  if (growing == nullptr) {
    finishes = reduction_finish(schedule.collectives[at(group.collective.value)], starts,
                                tariff.reduces(op), tariff.cluster(), ports);
  } else {
    std::vector<Duration> by_chunk;
    for (size_t i = 0; i < starts.size(); ++i) {
      const auto own = tariff.grown_at(op.stage, group.members[i], growing->chunk_count, starts[i]);
      by_chunk.insert(by_chunk.end(), own.begin(), own.end());
    }
    finishes = reduction_finish_in_parts(*growing, std::move(by_chunk), tariff.reduces(op),
                                         tariff.cluster(), ports);
  }
  for (size_t i = 0; i < finishes.size(); ++i) ends[i].second = finishes[i];
  return ends;
}

std::vector<std::pair<WorkerId, int32_t>> heads_of(const Program& program,
                                                   const std::vector<ComputeLane>& compute,
                                                   const std::function<int32_t(size_t)>& next) {
  std::vector<std::pair<WorkerId, int32_t>> all;
  for (size_t i = 0; i < program.lanes().size(); ++i) {
    const Program::Lane& lane = program.lanes()[i];
    std::vector<int32_t> heads;
    if (lane.kind == LaneKind::Compute) {
      compute[at(lane.worker)].heads(heads);
    } else if (next(i) >= 0) {
      heads.push_back(next(i) - program.first()[at(lane.worker)]);
    }
    for (const int32_t head : heads) all.emplace_back(WorkerId{lane.worker}, head);
  }
  return all;
}

void note_bytes(const Program& program, const Tariff& tariff, Outcome& outcome) {
  std::vector<std::pair<Duration, int64_t>> changes;
  for (size_t w = 0; w + 1 < program.first().size(); ++w) {
    changes.clear();
    for (int32_t op = program.first()[w]; op < program.first()[w + 1]; ++op) {
      if (program.lane(op) < 0 || outcome.finish[at(op)] == kNotYet) continue;
      const LaneKind lane = program.lanes()[at(program.lane(op))].kind;
      const bool comes = lane == LaneKind::RecvForward || lane == LaneKind::RecvBackward;
      changes.emplace_back(outcome.start[at(op)],
                           (comes ? tariff.moves(op) : tariff.writes(op)).count);
      changes.emplace_back(outcome.finish[at(op)], -tariff.frees(op).count);
    }
    // At equal times, ends give bytes back before starts take them.
    std::sort(changes.begin(), changes.end());
    Wide bytes = 0, most = 0;
    for (const auto& [time, change] : changes) most = std::max(most, bytes += change);
    outcome.peak_bytes.push_back({static_cast<int64_t>(std::min<Wide>(most, kMostBytes.count))});
  }
}

Outcome run_clockwork(const Program& program, const Plan& plan, const Schedule& schedule,
                      const Tariff& tariff, const PriceOptions& options) {
  return Clockwork(program, plan, schedule, tariff, options).run();
}

}  // namespace tenuto
