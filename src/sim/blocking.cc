#include "sim/blocking.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "ir/compute_lane.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

constexpr Duration kNotYet{-1};

// What both ways of running share: who must have ended before whom, and the ends of messages.
// Nothing here depends on the order in which workers are looked at: each start is the largest of
// times that are known for good.
class Queues {
 public:
  Queues(const Program& program, const Schedule& schedule, const Tariff& tariff)
      : program_(program), tariff_(tariff), worker_count_(schedule.lists.size()) {
    result_.start.assign(at(program.size()), kNotYet);
    result_.finish.assign(at(program.size()), kNotYet);
    missing_.assign(program.missing().begin(), program.missing().end());
    ready_.assign(at(program.size()), Duration{});
    for (size_t w = 0; w < worker_count_; ++w) {
      queue_.emplace_back();
      for (int32_t op = program.first()[w]; op < program.first()[w + 1]; ++op) {
        if (program.lane(op) >= 0) queue_.back().push_back(op);
      }
    }
    place_.assign(worker_count_, 0);
  }
  virtual ~Queues() = default;

  Outcome run(const PriceOptions& options) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t w = 0; w < worker_count_; ++w) {
        while (place_[w] < queue_[w].size() && go(w)) moved = true;
      }
    }
    note_peaks(options);
    for (size_t w = 0; w < worker_count_; ++w) {
      if (place_[w] == queue_[w].size()) continue;
      result_.waiting.emplace_back(WorkerId{static_cast<int32_t>(w)},
                                   queue_[w][place_[w]] - program_.first()[w]);
    }
    return std::move(result_);
  }

 protected:
  // Starts what stands first in the worker's queue and moves place_ on; false when it must wait.
  virtual bool go(size_t worker) = 0;

  // Sets the end of an op and tells its readers.
  void end(int32_t op, Duration finish) {
    result_.finish[at(op)] = finish;
    ++result_.ended;
    for (int32_t e = program_.edge_of(op); e >= 0; e = program_.edge(e).next) {
      const int32_t reader = program_.edge(e).to;
      --missing_[at(reader)];
      ready_[at(reader)] = std::max(ready_[at(reader)], finish);
    }
  }

  Duration way(int32_t send) const {
    const Op& op = program_.op(send);
    const Link link = tariff_.cluster().link({program_.worker(send)}, op.peer);
    return link.latency + transfer_time(tariff_.moves(send), link.bytes_per_second);
  }

  const Program& program_;
  const Tariff& tariff_;
  const size_t worker_count_;
  Outcome result_;
  std::vector<int32_t> missing_;
  std::vector<Duration> ready_;  // when all that an op reads is there
  std::vector<std::vector<int32_t>> queue_;
  std::vector<size_t> place_;

 private:
  void note_peaks(const PriceOptions& options);
};

// Micro-batches in list order.
void Queues::note_peaks(const PriceOptions& options) {
  for (const auto& queue : queue_) {
    int32_t whole = 0, late = 0;
    double most = 0;
    for (const int32_t op : queue) {
      const OpKind kind = program_.op(op).kind;
      if (kind == OpKind::Forward) most = std::max(most, ++whole + options.weight_share * late);
      if (kind == OpKind::BackwardInput) --whole, ++late;
      if (kind == OpKind::BackwardWeight) --late;
    }
    result_.peak_micros.push_back(most);
  }
  if (options.bytes) note_bytes(program_, tariff_, result_);
}

// Whole backward: what stands between two timed ops is exchanged together and waited for.
class Exchanges : public Queues {
 public:
  Exchanges(const Program& program, const Schedule& schedule, const Tariff& tariff)
      : Queues(program, schedule, tariff), now_(schedule.lists.size(), Duration{}) {
    // A weight gradient that takes no time is no boundary: it moves in front of the messages.
    for (auto& queue : queue_) {
      for (size_t i = 1; i < queue.size(); ++i) {
        for (size_t k = i; k > 0 && program.op(queue[k]).kind == OpKind::BackwardWeight &&
                           is_message(program.op(queue[k - 1]));
             --k) {
          std::swap(queue[k], queue[k - 1]);
        }
      }
    }
  }

 private:
  bool go(size_t worker) override {
    const size_t first = place_[worker];
    const int32_t op = queue_[worker][first];
    if (!is_message(program_.op(op))) {
      if (missing_[at(op)] > 0) return false;
      result_.start[at(op)] = std::max(now_[worker], ready_[at(op)]);
      now_[worker] = result_.start[at(op)] + tariff_.time(op);
      result_.busy += tariff_.time(op);
      end(op, now_[worker]);
      ++place_[worker];
      return true;
    }
    size_t last = first;
    while (last < queue_[worker].size() && is_message(program_.op(queue_[worker][last]))) ++last;
    bool moved = false;
    for (size_t i = first; i < last; ++i) moved |= post(worker, queue_[worker][i]);
    Duration done = now_[worker];
    for (size_t i = first; i < last; ++i) {
      const int32_t message = queue_[worker][i];
      if (result_.finish[at(message)] == kNotYet) return moved;
      done = std::max(done, result_.finish[at(message)]);
    }
    now_[worker] = done;
    place_[worker] = last;
    return true;
  }

  // Starts a message of the exchange, and ends both sides when the other has started too. True when
  // something changed.
  bool post(size_t worker, int32_t message) {
    if (result_.start[at(message)] != kNotYet || missing_[at(message)] > 0) return false;
    result_.start[at(message)] = std::max(now_[worker], ready_[at(message)]);
    const int32_t other = program_.partner(message);
    if (result_.start[at(other)] == kNotYet) return true;
    const bool sends = program_.op(message).kind == OpKind::Send;
    const int32_t send = sends ? message : other, recv = sends ? other : message;
    const Duration sent = result_.start[at(send)], posted = result_.start[at(recv)];
    end(send, std::max(sent, posted));
    end(recv, std::max(sent + way(send), posted));
    return true;
  }

  std::vector<Duration> now_;  // when each worker's last op or exchange is over
};

// Split backward: one launch queue a worker, one stream for the messages of each pair.
class LaunchQueues : public Queues {
 public:
  LaunchQueues(const Program& program, const Schedule& schedule, const Tariff& tariff,
               const std::vector<Duration>& planned)
      : Queues(program, schedule, tariff),
        launched_(schedule.lists.size(), Duration{}),
        free_at_(schedule.lists.size(), Duration{}) {
    // When an item is due: a compute op when it starts, a message when its value is made.
    const auto due = [&](int32_t number) {
      const Op& op = program.op(number);
      if (!is_message(op)) return std::tuple(planned[at(number)], 2, op.stage, number);
      const int32_t send = op.kind == OpKind::Send ? number : program.partner(number);
      return std::tuple(planned[at(send)], op.moved == ValueKind::Gradient ? 0 : 1, op.stage,
                        op.micro.value);
    };
    for (auto& queue : queue_) {
      std::stable_sort(queue.begin(), queue.end(),
                       [&](int32_t left, int32_t right) { return due(left) < due(right); });
    }
  }

 private:
  // When the stream of a worker with a peer is free; kNotYet while a message is on it whose other
  // end has not started.
  Duration& stream(size_t worker, WorkerId peer) {
    return streams_.try_emplace({static_cast<int32_t>(worker), peer.value}).first->second;
  }

  bool go(size_t worker) override {
    const int32_t number = queue_[worker][place_[worker]];
    const Op& op = program_.op(number);
    if (missing_[at(number)] > 0) return false;
    Duration start = std::max(launched_[worker], ready_[at(number)]);
    if (!is_message(op)) {
      start = std::max(start, free_at_[worker]);
      result_.start[at(number)] = launched_[worker] = start;
      free_at_[worker] = start + tariff_.time(number);
      result_.busy += tariff_.time(number);
      end(number, free_at_[worker]);
    } else {
      Duration& mine = stream(worker, op.peer);
      if (mine == kNotYet) return false;
      start = std::max(start, mine);
      result_.start[at(number)] = launched_[worker] = start;
      mine = kNotYet;
      const int32_t other = program_.partner(number);
      if (result_.start[at(other)] != kNotYet) {
        const bool sends = op.kind == OpKind::Send;
        const int32_t send = sends ? number : other, recv = sends ? other : number;
        const Duration there =
            std::max(result_.start[at(send)] + way(send), result_.start[at(recv)]);
        mine = stream(at(op.peer.value), {static_cast<int32_t>(worker)}) = there;
        end(send, there);
        end(recv, there);
      }
    }
    ++place_[worker];
    return true;
  }

  std::vector<Duration> launched_;  // when the last item of each queue started
  std::vector<Duration> free_at_;   // when each worker's compute stream is free
  std::map<std::pair<int32_t, int32_t>, Duration> streams_;
};

// The undisturbed run with equal op times by which launch queues are filled: starts of compute ops
// and of sends.
std::vector<Duration> planned_starts(const Program& program, const Plan& plan,
                                     const Schedule& schedule) {
  Model model;
  model.layers.resize(at(plan.stages.back().layer_end));
  for (const Stage& stage : plan.stages) {
    Layer& layer = model.layers[at(stage.layer_first)];
    layer.forward = layer.backward_input = layer.backward_weight = Duration{1};
  }
  const Cluster cluster = uniform_cluster(static_cast<int32_t>(schedule.lists.size()), {});
  Plan listed;
  listed.stages = plan.stages;
  listed.split_backward = plan.split_backward;
  PriceOptions options;
  options.update = false;
  const Tariff tariff(program, listed, model, cluster, options);
  return run_clockwork(program, listed, schedule, tariff, options).start;
}

}  // namespace

Outcome run_blocking(const Program& program, const Plan& plan, const Schedule& schedule,
                     const Tariff& tariff, const PriceOptions& options) {
  CHECK(!options.update, "blocking messages are priced to the last weight gradient");
  if (!plan.split_backward) return Exchanges(program, schedule, tariff).run(options);
  const std::vector<Duration> planned = planned_starts(program, plan, schedule);
  return LaunchQueues(program, schedule, tariff, planned).run(options);
}

}  // namespace tenuto
