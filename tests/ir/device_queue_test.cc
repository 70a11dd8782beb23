// The device's queue: the order in which it is filled, and when its ops start.
#include "ir/device_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/text.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Plan plan_of(const std::string& order, int32_t stages, int32_t micros, bool split) {
  Shape shape;
  shape.stages = stages;
  shape.micros = micros;
  shape.order = order;
  shape.split_backward = split;
  const auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? plan.value() : Plan{};
}

std::vector<std::string> words_of(const Plan& plan) {
  const auto orders = device_orders(plan, plan.schedule);
  EXPECT_TRUE(orders.ok()) << (orders.ok() ? "" : orders.error().message);
  std::vector<std::string> words;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    words.emplace_back();
    for (const int32_t index : orders.value()[w]) {
      words.back() += (words.back().empty() ? "" : " ") +
                      to_text(plan.schedule.lists[w][static_cast<size_t>(index)]);
    }
  }
  return words;
}

TEST(DeviceQueue, WholeBackwardKeepsTheList) {
  EXPECT_EQ(
      words_of(plan_of("1f1b", 2, 2, false)),
      (std::vector<std::string>{"F0.0 >a0.0@1 F0.1 >a0.1@1 <g1.0@1 B0.0 W0.0 <g1.1@1 B0.1 W0.1",
                                "<a0.0@0 F1.0 B1.0 W1.0 >g1.0@0 <a0.1@0 F1.1 B1.1 W1.1 >g1.1@0"}));
}

// Messages are queued in the order of a run whose ops all take equal times: the second worker sends
// its first gradient after two ops, so this message is behind the second activation at both ends.
TEST(DeviceQueue, SplitBackwardGoesByEqualTimes) {
  EXPECT_EQ(
      words_of(plan_of("zb-h1", 2, 2, true)),
      (std::vector<std::string>{"F0.0 >a0.0@1 F0.1 >a0.1@1 <g1.0@1 B0.0 W0.0 <g1.1@1 B0.1 W0.1",
                                "<a0.0@0 F1.0 <a0.1@0 B1.0 >g1.0@0 F1.1 B1.1 >g1.1@0 W1.0 W1.1"}));
}

// Every op except those of the update is queued once, compute ops in list order, and the messages
// of a pair in one order at both ends: otherwise queues could deadlock.
TEST(DeviceQueue, OrdersAgreeBetweenPairs) {
  for (const OrderCard& card : order_cards()) {
    for (int32_t stages = 2; stages <= 5; ++stages) {
      const Plan plan = plan_of(card.name, stages, 2 * stages, card.splits_backward);
      SCOPED_TRACE(testing::Message() << card.name << ", " << stages << " stages");
      const auto orders = device_orders(plan, plan.schedule);
      ASSERT_TRUE(orders.ok());
      std::map<std::pair<int32_t, int32_t>, std::vector<Value>> pairs;
      for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
        const std::vector<Op>& list = plan.schedule.lists[w];
        int32_t last = -1;
        std::vector<int32_t> seen = orders.value()[w];
        for (const int32_t index : seen) {
          const Op& op = list[static_cast<size_t>(index)];
          EXPECT_FALSE(is_update(op));
          if (is_message(op)) {
            pairs[{static_cast<int32_t>(w), op.peer.value}].push_back(moved_value(op));
          } else {
            EXPECT_LT(last, index);
            last = index;
          }
        }
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
        const auto updates = std::count_if(list.begin(), list.end(), is_update);
        EXPECT_EQ(seen.size() + static_cast<size_t>(updates), list.size());
      }
      if (!plan.split_backward) continue;
      for (const auto& [pair, values] : pairs) {
        EXPECT_EQ(values, (pairs[{pair.second, pair.first}]));
      }
    }
  }
}

TEST(DeviceQueue, AMessagesLengthDependsOnTheKindOfBackward) {
  const auto ends = [](bool split, int sent, int posted, int way) {
    const Meeting met = meet(split, Duration(sent), Duration(posted), Duration(way));
    return std::pair(met.send_end.count(), met.recv_end.count());
  };
  EXPECT_EQ(ends(false, 10, 4, 5), std::pair(int64_t{10}, int64_t{15}));
  EXPECT_EQ(ends(false, 10, 12, 5), std::pair(int64_t{12}, int64_t{15}));
  EXPECT_EQ(ends(false, 10, 20, 5), std::pair(int64_t{20}, int64_t{20}));
  EXPECT_EQ(ends(true, 10, 12, 5), std::pair(int64_t{15}, int64_t{15}));
  EXPECT_EQ(ends(true, 10, 20, 5), std::pair(int64_t{20}, int64_t{20}));
}

// An item waits for those before it, a message also for the pair's stream; next() returns each item
// once.
TEST(DeviceQueue, LaunchesInOrder) {
  const Op forward{OpKind::Forward, ValueKind::None, -1, {0}, {0}, {}, {}};
  const Op first{OpKind::Send, ValueKind::Activation, -1, {0}, {0}, {1}, {}};
  Op second = first, next = forward;
  second.micro = next.micro = {1};
  const std::vector<Op> list = {forward, first, second, next};
  DeviceQueue queue(list, {0, 1, 2, 3}, true, Duration(100));
  const auto start_of = [&](int32_t index) {
    const auto item = queue.next();
    return item && item->index == index ? item->start.count() : -1;
  };
  EXPECT_FALSE(queue.next());  // the forward is not ready yet
  queue.ready(0, Duration(40));
  queue.ready(3, Duration(40));
  EXPECT_EQ(start_of(0), 100);
  EXPECT_FALSE(queue.next());
  queue.end(0, Duration(107));
  queue.ready(1, Duration(107));
  queue.ready(2, Duration(107));
  EXPECT_EQ(start_of(1), 107);
  EXPECT_FALSE(queue.next());  // the stream is busy, and the next forward waits behind
  queue.end(1, Duration(160));
  EXPECT_EQ(start_of(2), 160);
  EXPECT_EQ(start_of(3), 160);
  EXPECT_EQ(queue.head(), -1);
}

// The messages between two compute ops start together, and the next compute op waits for all.
TEST(DeviceQueue, ExchangesTogether) {
  const Op forward{OpKind::Forward, ValueKind::None, -1, {0}, {0}, {}, {}};
  const Op send{OpKind::Send, ValueKind::Activation, -1, {0}, {0}, {1}, {}};
  const Op recv{OpKind::Recv, ValueKind::Gradient, -1, {1}, {0}, {1}, {}};
  const Op backward{OpKind::BackwardInput, ValueKind::None, -1, {0}, {0}, {}, {}};
  const std::vector<Op> list = {forward, send, recv, backward};
  DeviceQueue queue(list, {0, 1, 2, 3}, false, Duration(0));
  queue.ready(0, Duration(0));
  ASSERT_TRUE(queue.next());
  EXPECT_FALSE(queue.next());
  queue.end(0, Duration(5));
  queue.ready(1, Duration(5));
  for (const int32_t index : {1, 2}) {
    const auto item = queue.next();
    ASSERT_TRUE(item);
    EXPECT_EQ(item->index, index);
    EXPECT_EQ(item->start, Duration(5));
  }
  EXPECT_FALSE(queue.next());
  queue.end(2, Duration(30));
  queue.ready(3, Duration(30));
  EXPECT_FALSE(queue.next());  // the send has not ended
  queue.end(1, Duration(45));
  const auto item = queue.next();
  ASSERT_TRUE(item);
  EXPECT_EQ(item->start, Duration(45));
  queue.end(3, Duration(50));
  EXPECT_FALSE(queue.next());
  EXPECT_EQ(queue.head(), -1);
}

}  // namespace
}  // namespace tenuto
