// `check` against a search over all orders in which a small plan's ops can start and its messages
// arrive: a plan is refused exactly when some timing makes it deadlock.
#include "ir/exhaustive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "ir/check.h"
#include "ir/small_plan.h"
#include "ir/text.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "sanitized.h"

namespace tenuto {
namespace {

constexpr int32_t kUnbounded = 1000;  // receives ahead: more than there are messages

// Counts of the plans by their result.
struct Tally {
  int plans = 0, accepted = 0, refused = 0;
  int64_t states = 0, most_states = 0;

  void count(bool right, const Endings& endings) {
    ++plans;
    ++(right ? accepted : refused);
    states += endings.states;
    most_states = std::max(most_states, endings.states);
  }
  void print(const char* what) const {
    std::printf("%-34s %4d plans: %4d accepted, %4d refused; %8lld states, at most %lld\n", what,
                plans, accepted, refused, static_cast<long long>(states),
                static_cast<long long>(most_states));
  }
};

std::string describe(const Plan& plan) {
  std::string text = to_text(plan.schedule);
  for (const Limit& limit : plan.limits) {
    text += "limit " + std::to_string(limit.micros) + " warm-up " + std::to_string(limit.warm_up) +
            " memory " + std::to_string(limit.memory.most) + "/" +
            std::to_string(limit.memory.whole) + "/" + std::to_string(limit.memory.late) + "\n";
  }
  return text;
}

// Expects that check and search agree, and that all orders of events end the same.
void judge(const Plan& plan, uint64_t seed, Tally& tally) {
  const Status status = check(plan);
  const Endings endings = search_all(plan);
  ASSERT_TRUE(endings.complete);
  tally.count(status.ok(), endings);
  EXPECT_NE(endings.ends, endings.stands_still) << "seed " << seed << "\n" << describe(plan);
  EXPECT_EQ(status.ok(), !endings.stands_still)
      << "seed " << seed << ": check says " << (status.ok() ? "fine" : status.error().message)
      << "\n"
      << endings.where << describe(plan);
  if (status.ok()) return;
  const std::string& said = status.error().message;
  EXPECT_NE(said.find("nothing can move after"), std::string::npos) << said;
  EXPECT_NE(said.find(" waits at op "), std::string::npos) << said;
}

const std::vector<SmallKind>& kinds_of_one_stage() {
  static const std::vector<SmallKind> kinds = {
      {2, 2, 1, 3}, {2, 2, 1, 4}, {2, 3, 1, 3}, {2, 3, 1, 4}};
  return kinds;
}

// The number of plans to draw of a kind: fewer of larger ones.
uint64_t seeds_of(const SmallKind& kind) {
  return kind.workers * kind.micros < 12 ? (kSanitized ? 20 : 60) : (kSanitized ? 3 : 8);
}

TEST(Exhaustive, CheckRefusesPlansThatCanDeadlock) {
  Tally tally;
  for (const SmallKind& kind : kinds_of_one_stage()) {
    for (uint64_t seed = 0; seed < seeds_of(kind); ++seed) {
      Random random(mix(1, seed, static_cast<uint64_t>(kind.workers * 10 + kind.micros)));
      judge(small_ready_plan(kind, MicroOrder::Global, random), seed, tally);
      if (HasFailure()) return;
    }
  }
  tally.print("one stage a worker");
  EXPECT_GT(tally.accepted, tally.plans / 2);
  EXPECT_GT(tally.refused, 5);
}

// With one stage a worker and no warm-up, one global order of micro-batches is enough: no plan with
// memory for a micro-batch is refused.
TEST(Exhaustive, OneOrderIsEnough) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(mix(2, seed));
    Plan plan = small_ready_plan({2, 2, 1, 3}, MicroOrder::Global, random);
    for (Limit& limit : plan.limits) limit.warm_up = 0;
    EXPECT_TRUE(check(plan).ok());
    // One buffer for each peer and direction is enough, too.
    for (const int32_t ahead : {1, 2}) {
      EXPECT_FALSE(search_all(plan, {ahead, 0}).stands_still) << seed << "\n" << describe(plan);
    }
  }
}

// The stages of a worker share its slots: check must find out whether the order of the stages in
// the lists fits the memory limit.
TEST(Exhaustive, SharedSlotsOfSeveralStages) {
  Tally tally;
  for (const SmallKind& kind : {SmallKind{2, 1, 2, 3}, SmallKind{1, 2, 2, 2}, SmallKind{2, 2, 2, 2},
                                SmallKind{1, 2, 2, 3}}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      Random random(mix(3, seed, static_cast<uint64_t>(kind.workers * 10 + kind.micros)));
      judge(small_ready_plan(kind, MicroOrder::Global, random), seed, tally);
      if (HasFailure()) return;
    }
  }
  tally.print("two stages a worker");
  EXPECT_GT(tally.accepted, tally.plans / 6);
  EXPECT_GT(tally.refused, tally.plans / 6);
}

TEST(Exhaustive, ListedPlans) {
  Tally tally;
  for (const SmallKind& kind :
       {SmallKind{2, 2, 1, 3}, SmallKind{1, 2, 2, 2}, SmallKind{2, 3, 1, 2}}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      Random random(mix(4, seed, static_cast<uint64_t>(kind.workers * 10 + kind.micros)));
      judge(small_listed_plan(kind, random), seed, tally);
      if (HasFailure()) return;
    }
  }
  tally.print("listed");
  EXPECT_GT(tally.accepted, tally.plans / 4);
  EXPECT_GT(tally.refused, tally.plans / 10);
}

// With as many buffers as slots, no message ever waits for a buffer, in any order of events.
TEST(Exhaustive, BuffersBySlotsCostNothing) {
  int bounded = 0;
  for (const SmallKind& kind : kinds_of_one_stage()) {
    for (uint64_t seed = 0; seed < seeds_of(kind); ++seed) {
      Random random(mix(5, seed, static_cast<uint64_t>(kind.workers * 10 + kind.micros)));
      const Plan plan = seed % 4 == 0 ? small_listed_plan(kind, random)
                                      : small_ready_plan(kind, MicroOrder::Global, random);
      const Endings endings = search_all(plan);
      ASSERT_TRUE(endings.complete);
      EXPECT_FALSE(endings.send_waits) << seed << "\n" << describe(plan);
      const Endings unbounded = search_all(plan, {kUnbounded, 0});
      EXPECT_EQ(endings.states, unbounded.states) << seed;
      bounded += search_all(plan, {1, 0}).send_waits;
    }
  }
  EXPECT_GT(bounded, 0);  // with one buffer messages do wait, so the search can see it
}

// The search finds the deadlocks of broken rules. First: each worker has its own order of
// micro-batches.
TEST(Exhaustive, ADifferentOrderAtEachWorkerDeadlocks) {
  int stand_still = 0, plans = 0;
  for (const SmallKind& kind : kinds_of_one_stage()) {
    for (uint64_t seed = 0; seed < seeds_of(kind); ++seed, ++plans) {
      Random random(mix(6, seed, static_cast<uint64_t>(kind.workers * 10 + kind.micros)));
      Plan plan = small_ready_plan(kind, MicroOrder::OfAWorker, random);
      for (Limit& limit : plan.limits) limit.warm_up = 0;
      const Endings endings = search_all(plan);
      stand_still += endings.stands_still;
      EXPECT_NE(endings.ends, endings.stands_still);
      EXPECT_TRUE(!check(plan).ok() || !endings.stands_still) << describe(plan);
    }
  }
  std::printf("an order of each worker's own: %d of %d plans can stand still\n", stand_still,
              plans);
  EXPECT_GT(stand_still, plans / 4);
}

// Second: a worker has one buffer for the message that comes first, instead of buffers by name.
TEST(Exhaustive, FirstComeBuffersDeadlock) {
  int stand_still = 0, both = 0, plans = 0;
  for (const SmallKind& kind : kinds_of_one_stage()) {
    for (uint64_t seed = 0; seed < seeds_of(kind); ++seed, ++plans) {
      Random random(mix(7, seed, static_cast<uint64_t>(kind.workers * 10 + kind.micros)));
      Plan plan = small_ready_plan(kind, MicroOrder::Global, random);
      for (Limit& limit : plan.limits) limit.warm_up = 0;
      EXPECT_TRUE(check(plan).ok());
      const Endings endings = search_all(plan, {kUnbounded, 1});
      stand_still += endings.stands_still;
      both += endings.stands_still && endings.ends;
    }
  }
  std::printf(
      "buffers first come, first served: %d of %d plans can stand still, %d of them only"
      " under some timings\n",
      stand_still, plans, both);
  EXPECT_GT(both, plans / 4);  // a single run of these may not show the deadlock
}

// The clip decision on the previous step comes at any moment, and a worker validates after its
// current op: that changes no ending.
TEST(Exhaustive, ValidationCausesNoDeadlock) {
  Tally tally;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const SmallKind& kind : {SmallKind{2, 2, 1, 2}, SmallKind{1, 3, 1, 2}}) {
      Random random(mix(9, seed, static_cast<uint64_t>(kind.workers)));
      const bool listed = seed % 2 == 1;
      const Plan plan = listed ? small_listed_plan(kind, random)
                               : small_ready_plan(kind, MicroOrder::Global, random);
      judge(with_update(plan, true), seed, tally);
      EXPECT_EQ(check(with_update(plan, true)).ok(), check(plan).ok());
      if (HasFailure()) return;
    }
  }
  tally.print("with validation");
  EXPECT_GT(tally.accepted, tally.plans / 2);
  EXPECT_GT(tally.refused, 2);
}

// Whatever make_plan makes ends under every timing.
TEST(Exhaustive, MadePlans) {
  int plans = 0;
  for (const OrderCard& card : order_cards()) {
    for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
      for (const int32_t memory : {0, 2, 3}) {
        Shape shape;
        shape.stages = 2;
        shape.pipelines = card.chunks > 1 ? 1 : 2;
        shape.micros = 2;
        shape.order = card.name;
        shape.split_backward = card.splits_backward;
        shape.dispatch = dispatch;
        shape.memory = memory;
        const auto plan = make_plan(shape);
        if (!plan.ok()) continue;  // too few micro-batches or too little memory for the order
        ++plans;
        const Endings endings = search_all(plan.value());
        EXPECT_TRUE(check(plan.value()).ok());
        EXPECT_TRUE(endings.complete && endings.ends && !endings.stands_still)
            << card.name << "\n"
            << endings.where << describe(plan.value());
      }
    }
  }
  EXPECT_GT(plans, 30);
}

// The error message for a plan that no timing can run.
TEST(Exhaustive, SaysWhatWaitsForWhat) {
  Shape shape;
  shape.stages = 2;
  shape.micros = 3;
  shape.dispatch = Dispatch::Ready;
  Plan plan = make_plan(shape).value();
  // The last stage needs two forwards before it makes a gradient, but the first has memory for one.
  plan.limits = {{1, 0, {}}, {2, 2, {}}};
  const Status status = check(plan);
  ASSERT_FALSE(status.ok());
  const std::string message = status.error().message;
  EXPECT_EQ(
      message.substr(0, message.find('\n')),
      "nothing can move after 4 of 40 ops under ready dispatch: worker 0 waits at op 6 (W0.0) for "
      "weight work 0.0, which its own op 5 (B0.0) makes; worker 0 waits at op 5 (B0.0) for g1.0, "
      "which worker 1 sends as op 3 (>g1.0@0) to op 4 (<g1.0@1) after op 2 (B1.0); worker 1 waits "
      "at "
      "op 2 (B1.0) for its warm-up forwards, of which op 6 (F1.1) is the next; worker 1 waits at "
      "op "
      "6 (F1.1) for a0.1, which worker 0 sends as op 3 (>a0.1@1) to op 5 (<a0.1@0) after op 2 "
      "(F0.1); worker 0 waits at op 2 (F0.1) for memory under its limit, which op 6 (W0.0) frees: "
      "a circle; change the lists or the limits so that what each waits for comes first");
  EXPECT_TRUE(search_all(plan).stands_still);
}

}  // namespace
}  // namespace tenuto
