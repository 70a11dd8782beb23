// Which path messages take, how many slots they have, and what they are for.
#include "runtime/path.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "plan/make_plan.h"
#include "runtime/tag.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

constexpr PathState kDirect{Path::Direct, 0};

TEST(Path, AnExplicitPathIsAlwaysUsed) {
  const LinkNews trouble{.errors = 3};
  const PathRule staged{PathWish::Staged, true};
  EXPECT_EQ(first_path(staged).path, Path::Staged);
  PathState state = first_path(staged);
  for (int step = 0; step < 100; ++step) state = next_path(staged, state, {});
  EXPECT_EQ(state.path, Path::Staged);
  const PathRule direct{PathWish::Direct, true};
  EXPECT_EQ(next_path(direct, first_path(direct), trouble).path, Path::Direct);
}

TEST(Path, AutomaticIsDirectIfTheWireSupportsIt) {
  EXPECT_EQ(first_path({PathWish::Automatic, true}), kDirect);
  const PathRule cannot{PathWish::Automatic, false};
  PathState state = first_path(cannot);
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(state.path, Path::Staged);
    state = next_path(cannot, state, {});
  }
}

TEST(Path, AnErrorMeansTwentyStagedSteps) {
  const PathRule rule{PathWish::Automatic, true};
  PathState state = next_path(rule, kDirect, {.errors = 1});
  EXPECT_EQ(state, (PathState{Path::Staged, 0}));
  for (int step = 0; step < 10; ++step) state = next_path(rule, state, {});
  EXPECT_EQ(state, (PathState{Path::Staged, 10}));
  state = next_path(rule, state, {.errors = 1});  // the count starts again here
  for (int step = 1; step < 20; ++step) {
    state = next_path(rule, state, {});
    EXPECT_EQ(state, (PathState{Path::Staged, step}));
  }
  EXPECT_EQ(next_path(rule, state, {}), kDirect);
}

TEST(Path, ADelayMattersOnlyIfTheDeviceWaits) {
  PathRule rule{PathWish::Automatic, true};
  const LinkNews slow{.round_trip = milliseconds(11), .of_micro = milliseconds(40)};
  const LinkNews edge{.round_trip = milliseconds(10), .of_micro = milliseconds(40)};
  EXPECT_EQ(next_path(rule, kDirect, slow), kDirect);
  rule.direct_waits = true;
  EXPECT_EQ(next_path(rule, kDirect, edge), kDirect);
  EXPECT_EQ(next_path(rule, kDirect, slow), (PathState{Path::Staged, 0}));
  PathState state{Path::Staged, 19};
  EXPECT_EQ(next_path(rule, state, slow), (PathState{Path::Staged, 0}));
  EXPECT_EQ(next_path(rule, state, edge), kDirect);
}

Plan plan_of(const std::string& order, int32_t stages, int32_t micros) {
  Shape shape;
  shape.stages = stages;
  shape.micros = micros;
  shape.layers = stages;
  shape.order = order;
  auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok());
  return std::move(plan).value();
}

TEST(Slots, AreAsManyAsMessagesInFlight) {
  // 1F1B: 4, 3, 2, 1 in flight, so one more before each link than behind it.
  const Plan plan = plan_of("1f1b", 4, 8);
  const auto middle = ring_slots(plan, {1});
  ASSERT_EQ(middle.size(), 4U);
  EXPECT_EQ(middle.at({{0}, false, ValueKind::Activation, {0}}), 4);
  EXPECT_EQ(middle.at({{0}, true, ValueKind::Gradient, {1}}), 4);
  EXPECT_EQ(middle.at({{2}, true, ValueKind::Activation, {1}}), 4);
  EXPECT_EQ(middle.at({{2}, false, ValueKind::Gradient, {2}}), 4);
  EXPECT_EQ(ring_slots(plan, {0}).size(), 2U);
  // Never more than there are messages.
  for (const auto& [ring, slots] : ring_slots(plan_of("gpipe", 2, 2), {0})) EXPECT_EQ(slots, 2);
  EXPECT_TRUE(ring_slots(plan_of("1f1b", 1, 4), {0}).empty());
}

TEST(Slots, BothEndsOfALinkHaveTheSameNumber) {
  for (const char* order : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    const Plan plan = plan_of(order, 4, 16);
    for (int32_t worker = 0; worker + 1 < 4; ++worker) {
      const auto mine = ring_slots(plan, {worker});
      const auto theirs = ring_slots(plan, {worker + 1});
      for (const auto& [ring, slots] : mine) {
        if (ring.peer != WorkerId{worker + 1}) continue;
        EXPECT_EQ(theirs.at({{worker}, !ring.send, ring.kind, ring.stage}), slots) << order;
      }
    }
  }
}

TEST(Slots, MessagesInDifferentOrdersGetASlotEach) {
  Plan plan = plan_of("1f1b", 2, 8);
  std::vector<Op>& list = plan.schedule.lists[1];
  const auto is_receive = [](const Op& op) { return op.kind == OpKind::Recv; };
  const auto first = std::find_if(list.begin(), list.end(), is_receive);
  const auto second = std::find_if(first + 1, list.end(), is_receive);
  ASSERT_NE(second, list.end());
  ASSERT_EQ(second->moved, ValueKind::Activation);
  std::swap(first->micro, second->micro);
  EXPECT_EQ(ring_slots(plan, {0}).at({{1}, true, ValueKind::Activation, {0}}), 8);
  EXPECT_EQ(ring_slots(plan, {1}).at({{0}, false, ValueKind::Activation, {0}}), 8);
  EXPECT_EQ(ring_slots(plan, {0}).at({{1}, false, ValueKind::Gradient, {1}}), 4);
}

// Of all messages only those of a state transfer give way.
TEST(Path, OnlyStateTransfersAreForTransfers) {
  Random random(82);
  const auto below = [&](int64_t limit) { return static_cast<int32_t>(random.below(limit)); };
  for (int i = 0; i < 10000; ++i) {
    const Value value{static_cast<ValueKind>(below(kValueKindCount)),
                      static_cast<int16_t>(below(kTagParts - 1)),
                      {below(kTagStages - 1)},
                      {below(kTagMicros - 1)}};
    EXPECT_EQ(purpose_of(tag_of(value, i, 7)), Purpose::Step);
    Value noted = value;
    noted.kind = ValueKind::Activation;
    EXPECT_EQ(purpose_of(tag_of_note(noted, i, 7)), Purpose::Step);
    EXPECT_EQ(purpose_of(tag_of_move({below(kTagGroups)}, value.part, below(kTagRounds),
                                     {below(kTagChunks)}, i, 7)),
              Purpose::Step);
    EXPECT_EQ(purpose_of(tag_of_transfer(value.stage, i % 2 == 0, i, 7)), Purpose::Transfer);
  }
}

}  // namespace
}  // namespace tenuto
