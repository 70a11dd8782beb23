#include "world/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace tenuto {
namespace {

using std::chrono::microseconds;

Event op_event(int32_t worker, OpKind kind, int32_t stage, int64_t start, int64_t finish) {
  Event event;
  event.worker = {worker};
  event.step = 7;
  event.op.kind = kind;
  event.op.stage = {stage};
  event.start = microseconds(start);
  event.finish = microseconds(finish);
  return event;
}

Event message(int32_t to, int32_t from, ValueKind moved, int64_t sent, int64_t arrival,
              int64_t bytes) {
  Event event = op_event(to, OpKind::Recv, from, sent, arrival);
  event.op.moved = moved;
  event.op.peer = {from};
  event.sent = microseconds(sent);
  event.moved = {bytes};
  return event;
}

TEST(Samples, CountMessagesAndOps) {
  std::vector<Event> events = {
      message(1, 0, ValueKind::Activation, 100, 110, 4096),
      message(1, 0, ValueKind::Activation, 200, 250, 8192),
      message(1, 0, ValueKind::Activation, 300, 330, 8192),
      message(1, 2, ValueKind::Gradient, 5000, 400, 4096),  // another clock
      message(1, 0, ValueKind::Norm, 400, 900, 4),
      message(1, 2, ValueKind::ClipDecision, 400, 900, 4),
      message(1, 0, ValueKind::Activation, 0, 900, 4096),  // no stamp
      op_event(1, OpKind::Forward, 1, 0, 10),
      op_event(1, OpKind::Forward, 1, 20, 40),
      op_event(1, OpKind::BackwardInput, 1, 40, 70),
      op_event(1, OpKind::Evaluate, 1, 0, 500),
      op_event(1, OpKind::Reduce, 1, 0, 500),
      op_event(1, OpKind::Step, 1, 0, 500),
      op_event(0, OpKind::Forward, 0, 0, 8),
  };
  const std::vector<StepSample> samples = make_samples(events);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].worker.value, 0);
  EXPECT_EQ(samples[0].step, 7);
  ASSERT_EQ(samples[0].ops.size(), 1u);
  EXPECT_EQ(samples[0].ops[0].median, microseconds(8));
  const StepSample& mine = samples[1];
  ASSERT_EQ(mine.links.size(), 2u);
  const LinkSample& from_0 = mine.links[0];
  EXPECT_EQ(from_0.from.value, 0);
  EXPECT_EQ(from_0.to.value, 1);
  EXPECT_EQ(from_0.messages, 3);
  EXPECT_EQ(from_0.least, microseconds(10));
  EXPECT_EQ(from_0.median, microseconds(30));
  EXPECT_EQ(from_0.upper, microseconds(40));
  EXPECT_EQ(from_0.smallest.count, 4096);
  EXPECT_EQ(from_0.largest.count, 8192);
  EXPECT_EQ(from_0.of_smallest, microseconds(10));
  EXPECT_EQ(from_0.of_largest, microseconds(30));
  EXPECT_EQ(mine.links[1].median, microseconds(-4600));
  ASSERT_EQ(mine.ops.size(), 2u);
  EXPECT_EQ(mine.ops[0].ops, 2);
  EXPECT_EQ(mine.ops[0].median, microseconds(15));
  EXPECT_EQ(mine.ops[1].kind, OpKind::BackwardInput);

  std::reverse(events.begin(), events.end());
  const std::vector<StepSample> again = make_samples(events);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[1].links[0].median, from_0.median);
  EXPECT_EQ(again[1].links[0].of_largest, from_0.of_largest);
  EXPECT_EQ(again[1].ops[0].median, mine.ops[0].median);
  EXPECT_TRUE(make_samples({}).empty());
}

}  // namespace
}  // namespace tenuto
