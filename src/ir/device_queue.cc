#include "ir/device_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "ir/compute_lane.h"
#include "ir/pairing.h"
#include "ir/walk.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

constexpr Duration kNotYet{-1};

// Whole backward: in list order. A weight gradient takes no time there and must not split an
// exchange in two, so it moves in front of the messages before it.
std::vector<int32_t> exchange_order(const std::vector<Op>& list) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < list.size(); ++i) {
    if (is_update(list[i])) continue;
    order.push_back(static_cast<int32_t>(i));
    if (list[i].kind != OpKind::BackwardWeight) continue;
    for (size_t k = order.size() - 1; k > 0 && is_message(list[at(order[k - 1])]); --k) {
      std::swap(order[k], order[k - 1]);
    }
  }
  return order;
}

// Simulates a run in list order in which each compute op takes one tick and a message no time. The
// result is the order of the launch queues.
class TickRun {
 public:
  TickRun(const Plan& plan, const Schedule& bare, const Pairing& pairing)
      : pairing_(pairing), running_(bare.lists.size(), -1) {
    listed_.stages = plan.stages;
    listed_.split_backward = plan.split_backward;
    for (size_t w = 0; w < bare.lists.size(); ++w) {
      walks_.emplace_back(listed_, bare, WorkerId{static_cast<int32_t>(w)});
      touched_.push_back(static_cast<int32_t>(w));
    }
    tick_.assign(at(pairing.first.back()), kNotYet);
    posted_.assign(tick_.size(), 0);
  }

  // When each op starts, by number; kNotYet = never.
  std::vector<Duration> run() {
    for (now_ = {}; !touched_.empty(); now_ += Duration(1)) {
      std::vector<int32_t> under_way;
      while (!touched_.empty()) {
        const int32_t worker = touched_.back();
        touched_.pop_back();
        if (go_on(worker)) under_way.push_back(worker);
      }
      for (const int32_t worker : under_way) {
        walks_[at(worker)].finish(std::exchange(running_[at(worker)], -1));
        touched_.push_back(worker);
      }
    }
    return std::move(tick_);
  }

 private:
  // Starts what the worker can start; true when that includes a compute op.
  bool go_on(int32_t worker) {
    Walk& walk = walks_[at(worker)];
    bool computes = false;
    for (bool again = true; again;) {
      again = false;
      const std::span<const int32_t> startable = walk.startable();
      const std::vector<int32_t> heads(startable.begin(), startable.end());
      for (const int32_t index : heads) {
        const Op& op = walk.op(index);
        const int32_t number = pairing_.number({worker}, index);
        if (op.kind == OpKind::Send) {
          if (posted_[at(pairing_.partner[at(number)])] == 0) continue;  // retried once posted
          deliver(worker, index, number);
          again = true;
          continue;
        }
        walk.start(index);
        if (op.kind == OpKind::Recv) {
          posted_[at(number)] = 1;
          touched_.push_back(op.peer.value);
        } else {
          tick_[at(number)] = now_;
          running_[at(worker)] = index;
          computes = true;
        }
      }
    }
    return computes;
  }

  void deliver(int32_t worker, int32_t index, int32_t number) {
    const WorkerId peer = walks_[at(worker)].op(index).peer;
    const int32_t other = pairing_.partner[at(number)];
    walks_[at(worker)].start(index);
    walks_[at(worker)].finish(index);
    walks_[at(peer.value)].finish(other - pairing_.first[at(peer.value)]);
    tick_[at(number)] = tick_[at(other)] = now_;
    touched_.push_back(peer.value);
  }

  const Pairing& pairing_;
  Plan listed_;
  std::vector<Walk> walks_;
  std::vector<int32_t> running_, touched_;
  std::vector<Duration> tick_;
  std::vector<uint8_t> posted_;
  Duration now_{};
};

// Split backward: in the order of the simulated run.
Result<std::vector<std::vector<int32_t>>> launch_orders(const Plan& plan,
                                                        const Schedule& schedule) {
  Schedule bare;
  bare.stage_count = schedule.stage_count;
  bare.micro_count = schedule.micro_count;
  std::vector<std::vector<int32_t>> orders;
  for (const std::vector<Op>& list : schedule.lists) {
    bare.lists.emplace_back();
    orders.emplace_back();
    for (size_t i = 0; i < list.size(); ++i) {
      if (is_update(list[i])) continue;
      bare.lists.back().push_back(list[i]);
      orders.back().push_back(static_cast<int32_t>(i));
    }
  }
  const auto pairing = pair_messages(bare);
  if (!pairing.ok()) return pairing.error();
  const std::vector<Duration> tick = TickRun(plan, bare, pairing.value()).run();
  for (size_t w = 0; w < orders.size(); ++w) {
    // When an item is due: a compute op when it starts, a message when it goes out.
    const auto due = [&](int32_t place) {
      const Op& op = bare.lists[w][at(place)];
      const int32_t number = pairing.value().first[w] + place;
      if (!is_message(op)) return std::tuple(tick[at(number)], 2, op.stage, place);
      return std::tuple(tick[at(number)], op.moved == ValueKind::Gradient ? 0 : 1, op.stage,
                        op.micro.value);
    };
    std::vector<int32_t> places(orders[w].size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    std::stable_sort(places.begin(), places.end(),
                     [&](int32_t left, int32_t right) { return due(left) < due(right); });
    for (int32_t& place : places) place = orders[w][at(place)];
    orders[w] = std::move(places);
  }
  return orders;
}

}  // namespace

Meeting meet(bool split_backward, Duration send_start, Duration recv_start, Duration way) {
  const Duration there = std::max(send_start + way, recv_start);
  return {split_backward ? there : std::max(send_start, recv_start), there};
}

Result<std::vector<std::vector<int32_t>>> device_orders(const Plan& plan,
                                                        const Schedule& schedule) {
  if (plan.split_backward) return launch_orders(plan, schedule);
  std::vector<std::vector<int32_t>> orders;
  for (const std::vector<Op>& list : schedule.lists) orders.push_back(exchange_order(list));
  return orders;
}

DeviceQueue::DeviceQueue(std::span<const Op> list, std::vector<int32_t> order, bool split_backward,
                         Duration origin)
    : list_(list),
      order_(std::move(order)),
      split_(split_backward),
      held_(list.size(), 0),
      ready_(list.size(), kNotYet),
      start_(list.size(), kNotYet),
      end_(list.size(), kNotYet),
      now_(origin),
      launched_(origin),
      free_at_(origin) {
  for (const int32_t index : order_) {
    CHECK(index >= 0 && at(index) < list.size(), "an item of the worker's list");
    held_[at(index)] = 1;
    if (list[at(index)].kind == OpKind::Recv) ready_[at(index)] = Duration{};
  }
}

void DeviceQueue::ready(int32_t index, Duration when) {
  CHECK(holds(index), "an item of the queue");
  ready_[at(index)] = when;
}

bool DeviceQueue::is_message(int32_t index) const { return tenuto::is_message(list_[at(index)]); }

std::optional<DeviceQueue::Item> DeviceQueue::begin(int32_t index, Duration when) {
  start_[at(index)] = when;
  computing_ = computing_ || !is_message(index);
  return Item{index, when};
}

std::optional<DeviceQueue::Item> DeviceQueue::next() {
  return split_ ? next_launch() : next_exchange();
}

// If the exchange at place_ is over, moves place_ behind it.
bool DeviceQueue::leave_exchange() {
  size_t last = place_;
  Duration done = now_;
  for (; last < order_.size() && is_message(order_[last]); ++last) {
    if (end_[at(order_[last])] == kNotYet) return false;
    done = std::max(done, end_[at(order_[last])]);
  }
  now_ = done;
  place_ = last;
  return true;
}

std::optional<DeviceQueue::Item> DeviceQueue::next_exchange() {
  while (place_ < order_.size() && !computing_) {
    const int32_t first = order_[place_];
    if (!is_message(first)) {
      if (start_[at(first)] != kNotYet) {  // and it has ended
        now_ = end_[at(first)];
        ++place_;
        continue;
      }
      if (ready_[at(first)] == kNotYet) return {};
      return begin(first, std::max(now_, ready_[at(first)]));
    }
    for (size_t i = place_; i < order_.size() && is_message(order_[i]); ++i) {
      const int32_t index = order_[i];
      if (start_[at(index)] != kNotYet || ready_[at(index)] == kNotYet) continue;
      return begin(index, std::max(now_, ready_[at(index)]));
    }
    if (!leave_exchange()) return {};
  }
  return {};
}

std::optional<DeviceQueue::Item> DeviceQueue::next_launch() {
  if (place_ == order_.size()) return {};
  const int32_t index = order_[place_];
  if (ready_[at(index)] == kNotYet) return {};
  Duration start = std::max(launched_, ready_[at(index)]);
  if (is_message(index)) {
    Duration& stream = streams_.try_emplace(list_[at(index)].peer).first->second;
    if (stream == kNotYet) return {};
    start = std::max(start, stream);
    stream = kNotYet;
  } else {
    if (computing_) return {};
    start = std::max(start, free_at_);
  }
  launched_ = start;
  ++place_;
  return begin(index, start);
}

void DeviceQueue::end(int32_t index, Duration when) {
  CHECK(start_[at(index)] != kNotYet && end_[at(index)] == kNotYet, "an item that is under way");
  end_[at(index)] = when;
  if (!is_message(index)) {
    computing_ = false;
    free_at_ = when;
  } else if (split_) {
    streams_[list_[at(index)].peer] = when;
  }
}

}  // namespace tenuto
