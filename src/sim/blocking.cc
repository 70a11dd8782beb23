#include "sim/blocking.h"

#include <algorithm>

#include "base/check.h"
#include "ir/device_queue.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

constexpr Duration kNotYet{-1};

// The queues of all workers, and the messages between them.
class Blocking {
 public:
  Blocking(const Program& program, const Plan& plan, const Schedule& schedule, const Tariff& tariff,
           std::vector<std::vector<int32_t>> orders)
      : program_(program), tariff_(tariff), split_(plan.split_backward) {
    result_.start.assign(at(program.size()), kNotYet);
    result_.finish.assign(at(program.size()), kNotYet);
    missing_.assign(program.missing().begin(), program.missing().end());
    ready_.assign(at(program.size()), Duration{});
    for (size_t w = 0; w < schedule.lists.size(); ++w) {
      queues_.emplace_back(schedule.lists[w], std::move(orders[w]), split_, Duration{});
      for (const int32_t index : queues_[w].order()) {
        if (missing_[at(program.first()[w] + index)] == 0) queues_[w].ready(index, Duration{});
      }
    }
  }

  Outcome run(const PriceOptions& options) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t w = 0; w < queues_.size(); ++w) {
        for (auto item = queues_[w].next(); item; item = queues_[w].next()) {
          start(static_cast<int32_t>(w), *item);
          moved = true;
        }
      }
    }
    note_peaks(options);
    for (size_t w = 0; w < queues_.size(); ++w) {
      if (queues_[w].head() < 0) continue;
      result_.waiting.emplace_back(WorkerId{static_cast<int32_t>(w)}, queues_[w].head());
    }
    return std::move(result_);
  }

 private:
  void start(int32_t worker, const DeviceQueue::Item& item) {
    const int32_t number = program_.first()[at(worker)] + item.index;
    result_.start[at(number)] = item.start;
    const Op& op = program_.op(number);
    if (!is_message(op)) {
      const Duration time = tariff_.time(number);
      result_.busy = plus(result_.busy, time);
      return end(worker, number, item.start + time);
    }
    const int32_t other = program_.partner(number);
    if (result_.start[at(other)] == kNotYet) return;
    const bool sends = op.kind == OpKind::Send;
    const int32_t sender = sends ? worker : op.peer.value, taker = sends ? op.peer.value : worker;
    const int32_t send = sends ? number : other, recv = sends ? other : number;
    const Link link = tariff_.cluster().link({sender}, {taker});
    const Duration way =
        plus(link.latency, transfer_time(tariff_.moves(send), link.bytes_per_second));
    const Meeting ends = meet(split_, result_.start[at(send)], result_.start[at(recv)], way);
    end(sender, send, ends.send_end);
    end(taker, recv, ends.recv_end);
  }

  // Sets the end of an op and tells its queue and its readers.
  void end(int32_t worker, int32_t op, Duration finish) {
    finish = std::min(finish, kLongestTime);
    result_.finish[at(op)] = finish;
    ++result_.ended;
    queues_[at(worker)].end(op - program_.first()[at(worker)], finish);
    for (int32_t e = program_.edge_of(op); e >= 0; e = program_.edge(e).next) {
      const int32_t reader = program_.edge(e).to;
      ready_[at(reader)] = std::max(ready_[at(reader)], finish);
      if (--missing_[at(reader)] > 0) continue;
      queues_[at(worker)].ready(reader - program_.first()[at(worker)], ready_[at(reader)]);
    }
  }

  // Counts the micro-batches that each worker holds, in queue order.
  void note_peaks(const PriceOptions& options) {
    for (size_t w = 0; w < queues_.size(); ++w) {
      int32_t whole = 0, late = 0;
      double most = 0;
      for (const int32_t index : queues_[w].order()) {
        const OpKind kind = program_.op(program_.first()[w] + index).kind;
        if (kind == OpKind::Forward) most = std::max(most, ++whole + options.weight_share * late);
        if (kind == OpKind::BackwardInput) --whole, ++late;
        if (kind == OpKind::BackwardWeight) --late;
      }
      result_.peak_micros.push_back(most);
    }
    if (options.bytes) note_bytes(program_, tariff_, result_);
  }

  const Program& program_;
  const Tariff& tariff_;
  const bool split_;
  std::vector<DeviceQueue> queues_;
  Outcome result_;
  std::vector<int32_t> missing_;
  std::vector<Duration> ready_;  // when all that an op reads is there
};

}  // namespace

Outcome run_blocking(const Program& program, const Plan& plan, const Schedule& schedule,
                     const Tariff& tariff, const PriceOptions& options) {
  CHECK(!options.update, "blocking messages are priced to the last weight gradient");
  auto orders = device_orders(plan, schedule);
  CHECK(orders.ok(), "a program has both ends of each message");
  return Blocking(program, plan, schedule, tariff, std::move(orders).value()).run(options);
}

}  // namespace tenuto
