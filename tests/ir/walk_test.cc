// One worker's walk, step by step.
#include "ir/walk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/effect.h"
#include "ir/text.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Plan plan_of(const std::string& text, Dispatch dispatch = Dispatch::Listed) {
  auto schedule = schedule_from_text(text, "test");
  EXPECT_TRUE(schedule.ok()) << (schedule.ok() ? "" : schedule.error().message);
  Plan plan;
  plan.dispatch = dispatch;
  plan.schedule = std::move(schedule).value();
  return plan;
}

std::string startable(Walk& walk) {
  std::string text;
  for (const int32_t index : walk.startable()) text += to_text(walk.op(index)) + " ";
  return text;
}

std::string waiting(const Walk& walk) {
  std::string text;
  for (const int32_t index : walk.waiting()) text += to_text(walk.op(index)) + " ";
  return text;
}

int32_t find(const Walk& walk, const std::string& token) {
  for (size_t i = 0; i < walk.list().size(); ++i) {
    if (to_text(walk.list()[i]) == token) return static_cast<int32_t>(i);
  }
  ADD_FAILURE() << token;
  return 0;
}

std::string run(Walk& walk, const std::string& token) {
  const int32_t index = find(walk, token);
  walk.start(index);
  std::string freed;
  for (const Value& value : walk.finish(index)) freed += to_text(value) + " ";
  return freed;
}

TEST(Walk, LastStageListed) {
  const Plan plan = plan_of(
      "stages 2 micros 2\nw0:\nw1: <a0.0@0 F1.0 B1.0 >g1.0@0 W1.0 <a0.1@0 F1.1 B1.1 >g1.1@0 W1.1 "
      "R1:1 M1 >n1@0 <v0@0 U1\n");
  Walk walk(plan, plan.schedule, {1});
  EXPECT_EQ(startable(walk), "<a0.0@0 <a0.1@0 <v0@0 ");
  EXPECT_EQ(waiting(walk), "F1.0 R1:1 >g1.0@0 ");
  EXPECT_EQ(walk.missing(find(walk, "F1.0")).size(), 1u);
  EXPECT_EQ(walk.held(), 0);
  run(walk, "<a0.1@0");
  EXPECT_EQ(startable(walk), "<a0.0@0 <v0@0 ");  // in list order F1.0 comes first
  run(walk, "<a0.0@0");
  EXPECT_EQ(startable(walk), "F1.0 <v0@0 ");
  walk.start(find(walk, "F1.0"));
  EXPECT_EQ(startable(walk), "<v0@0 ");
  EXPECT_EQ(walk.held(), 1);
  EXPECT_EQ(walk.finish(find(walk, "F1.0")).size(), 1u);
  EXPECT_EQ(run(walk, "B1.0"), "stash 1.0 ");
  EXPECT_EQ(startable(walk), "W1.0 >g1.0@0 <v0@0 ");
  EXPECT_EQ(run(walk, "W1.0"), "weight work 1.0 ");
  EXPECT_EQ(walk.held(), 0);
  EXPECT_EQ(run(walk, ">g1.0@0"), "g1.0 ");
  for (const char* token : {"F1.1", "B1.1", "W1.1", ">g1.1@0"}) run(walk, token);
  EXPECT_EQ(startable(walk), "R1:1 <v0@0 ");
  EXPECT_EQ(run(walk, "R1:1"), "");
  EXPECT_EQ(startable(walk), "M1 <v0@0 ");
  EXPECT_EQ(run(walk, "M1"), "");
  EXPECT_EQ(startable(walk), ">n1@0 <v0@0 ");
  EXPECT_EQ(run(walk, ">n1@0"), "");  // it may be sent to another worker too
  run(walk, "<v0@0");
  EXPECT_FALSE(walk.done());
  EXPECT_EQ(run(walk, "U1"), "total 1 partial 1.0 partial 1.1 ");
  EXPECT_TRUE(walk.done());
  ASSERT_EQ(walk.stored().size(), 2u);
  for (const Value& value : walk.stored()) EXPECT_TRUE(lives_to_end(value.kind));
}

TEST(Walk, KnowsTheLastOpThatAnotherWaitsFor) {
  const Plan plan = plan_of(
      "stages 2 micros 2\nw0:\nw1: <a0.0@0 F1.0 B1.0 >g1.0@0 W1.0 <a0.1@0 F1.1 B1.1 >g1.1@0 W1.1 "
      "R1:1 M1 >n1@0 <v0@0 U1\n");
  Walk walk(plan, plan.schedule, {1});
  const int32_t reduce = find(walk, "R1:1"), first = find(walk, "W1.0");
  const int32_t last = find(walk, "W1.1");
  for (const char* token : {"<a0.0@0", "F1.0", "B1.0", "<a0.1@0"}) run(walk, token);
  EXPECT_FALSE(walk.waits_only_for(reduce, first));  // it waits for the other one, too
  EXPECT_FALSE(walk.waits_only_for(reduce, last));
  run(walk, "W1.0");
  EXPECT_FALSE(walk.waits_only_for(reduce, first));
  EXPECT_TRUE(walk.waits_only_for(reduce, last));
  EXPECT_FALSE(walk.waits_only_for(reduce, find(walk, "B1.1")));
  EXPECT_TRUE(walk.waits_only_for(last, find(walk, "B1.1")));
  run(walk, "F1.1");
  run(walk, "B1.1");
  walk.start(last);
  EXPECT_TRUE(walk.waits_only_for(reduce, last));
  walk.finish(last);
  EXPECT_FALSE(walk.waits_only_for(reduce, last));  // it can start
}

TEST(Walk, ReadyTakesBackwardThenForwardThenWeight) {
  Plan plan = plan_of(
      "stages 2 micros 4\nw0: F0.0 >a0.0@1 F0.1 >a0.1@1 F0.2 >a0.2@1 F0.3 >a0.3@1 <g1.0@1 B0.0 "
      "W0.0 "
      "<g1.1@1 B0.1 W0.1 <g1.2@1 B0.2 W0.2 <g1.3@1 B0.3 W0.3\nw1:\n",
      Dispatch::Ready);
  plan.limits = {{3, 2}, {}};
  Walk walk(plan, plan.schedule, {0});
  run(walk, "F0.0");
  run(walk, "<g1.0@1");
  // A gradient is here, but the warm-up needs two forwards first.
  EXPECT_EQ(walk.startable().front(), find(walk, "F0.1"));
  run(walk, "F0.1");
  EXPECT_EQ(walk.startable().front(), find(walk, "B0.0"));
  run(walk, "B0.0");
  EXPECT_EQ(walk.startable().front(), find(walk, "F0.2"));
  run(walk, "F0.2");
  EXPECT_EQ(walk.held(), 3);
  // Three are held: the weight gradient frees memory.
  EXPECT_EQ(walk.startable().front(), find(walk, "W0.0"));
  run(walk, "W0.0");
  EXPECT_EQ(walk.startable().front(), find(walk, "F0.3"));
}

TEST(Walk, ReceivesHaveBuffers) {
  std::string text = "stages 2 micros 9\nw0:\nw1:";
  for (int m = 0; m < 9; ++m) {
    text += " <a0." + std::to_string(m) + "@0 E1." + std::to_string(m);
  }
  const Plan plan = plan_of(text + "\n");
  Walk walk(plan, plan.schedule, {1}, 2);
  EXPECT_EQ(startable(walk), "<a0.0@0 <a0.1@0 ");
  walk.start(find(walk, "<a0.0@0"));
  walk.start(find(walk, "<a0.1@0"));
  EXPECT_EQ(startable(walk), "");
  walk.finish(find(walk, "<a0.1@0"));
  EXPECT_EQ(startable(walk), "");  // the message keeps its buffer until its reader is done
  walk.finish(find(walk, "<a0.0@0"));
  run(walk, "E1.0");
  EXPECT_EQ(startable(walk), "E1.1 <a0.2@0 ");
}

int32_t posted_at_once(const Plan& plan, int32_t worker) {
  Walk walk(plan, plan.schedule, {worker});
  const auto able = walk.startable();
  return static_cast<int32_t>(std::count_if(able.begin(), able.end(), [&](int32_t index) {
    return walk.op(index).kind == OpKind::Recv && walk.op(index).micro.value >= 0;
  }));
}

// A worker posts receives for one activation more than the stage before holds, and for one gradient
// more than it holds itself. Later the clip decision and the norm use the two extra buffers.
TEST(Walk, ReceivesAreAsManyAsSlotsPlusOne) {
  Shape shape;
  shape.stages = 4;
  shape.micros = 24;
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    shape.dispatch = dispatch;
    const Plan plan = make_plan(shape).value();
    for (int32_t w = 0; w < 4; ++w) {
      EXPECT_EQ(most_in_flight(plan, plan.schedule, {w}), 4 - w);
      const int32_t activations = w == 0 ? 0 : 5 - (w - 1), gradients = w == 3 ? 0 : 5 - w;
      EXPECT_EQ(posted_at_once(plan, w), activations + gradients) << w;
    }
  }
  Plan plan = make_plan(shape).value();
  plan.limits.assign(4, {});
  EXPECT_EQ(most_in_flight(plan, plan.schedule, {0}), 24);
  EXPECT_EQ(posted_at_once(plan, 1), 48);
  plan.limits.assign(4, {0, 0, {20, 3, 1}});
  EXPECT_EQ(most_in_flight(plan, plan.schedule, {0}), 6);
  EXPECT_EQ(posted_at_once(plan, 1), 14);
}

// With two gradients in transit, as many as the worker has slots, the norm's receive can be posted
// as well.
TEST(Walk, TheNormHasABufferOfItsOwn) {
  Shape shape;
  shape.stages = 2;
  shape.micros = 3;
  const Plan plan = make_plan(shape).value();
  ASSERT_EQ(most_in_flight(plan, plan.schedule, {0}), 2);
  Walk walk(plan, plan.schedule, {0});
  for (const char* token : {"F0.0", "F0.1", "<g1.0@1", "B0.0"}) run(walk, token);
  EXPECT_EQ(startable(walk), "W0.0 >a0.0@1 <g1.1@1 <g1.2@1 <n1@1 ");
}

// If both ends have the messages in different orders, the receives ahead do not follow from slots.
TEST(Walk, ReceivesInAnotherOrderAreLimitedByNumber) {
  const Plan plan = plan_of(
      "stages 2 micros 3\nw0: F0.0 >a0.0@1 <g1.0@1 B0.0 W0.0 F0.1 >a0.1@1 <g1.1@1 B0.1 W0.1\n"
      "w1: <a0.1@0 <a0.0@0 F1.0 B1.0 >g1.0@0 W1.0 F1.1 B1.1 >g1.1@0 W1.1\n");
  EXPECT_EQ(most_in_flight(plan, plan.schedule, {0}), 1);
  EXPECT_EQ(posted_at_once(plan, 1), 2);
  EXPECT_EQ(posted_at_once(plan, 0), 1);
}

TEST(Walk, FindsAValueThatIsConsumedTwice) {
  const Plan plan = plan_of("stages 2 micros 1\nw0: F0.0 >a0.0@1 F1.0\nw1: <a0.0@0\n");
  EXPECT_EQ(Walk(plan, plan.schedule, {0}).double_reader(), 2);
  EXPECT_EQ(Walk(plan, plan.schedule, {1}).double_reader(), -1);
}

TEST(Walk, FindsWorkThatIsDoneTwice) {
  const Plan plan = plan_of("stages 1 micros 1\nw0: F0.0 F0.0\n");
  EXPECT_EQ(Walk(plan, plan.schedule, {0}).double_writer(), 1);
}

}  // namespace
}  // namespace tenuto
