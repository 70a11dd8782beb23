// What check refuses, and its messages.
#include "ir/check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "plan/lower.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Plan small_plan(int32_t pipelines = 1, Dispatch dispatch = Dispatch::Listed) {
  Shape shape;
  shape.stages = shape.layers = 2;
  shape.micros = 2;
  shape.pipelines = pipelines;
  shape.evaluation_micros = 2;
  shape.dispatch = dispatch;
  auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok());
  return std::move(plan).value();
}

Op op_of(const char* token) { return op_from_text(token).value(); }

void drop(std::vector<Op>& list, const char* token) {
  const auto found = std::find(list.begin(), list.end(), op_of(token));
  ASSERT_NE(found, list.end()) << token;
  list.erase(found);
}

void replace(std::vector<Op>& list, const char* token, const char* with) {
  const auto found = std::find(list.begin(), list.end(), op_of(token));
  ASSERT_NE(found, list.end()) << token;
  *found = op_of(with);
}

std::string refusal(const Plan& plan) {
  const Status status = check(plan);
  EXPECT_FALSE(status.ok());
  return status.ok() ? "" : status.error().message;
}

// The message starts with `sentence`; the list with an arrow follows on its own lines.
void expect_refused(const Plan& plan, const std::string& sentence) {
  const std::string message = refusal(plan);
  EXPECT_EQ(message.substr(0, sentence.size()), sentence) << message;
}

TEST(Check, AcceptsGeneratedPlans) {
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    const Status status = check(small_plan(2, dispatch));
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

TEST(Check, OneKindOfUpdate) {
  const Plan barrier = small_plan();
  const Plan ahead = with_update(barrier, true);
  EXPECT_TRUE(check(ahead).ok());
  Plan plan = barrier;
  replace(plan.schedule.lists[0], "M0", "N0");
  expect_refused(plan,
                 "worker 0, op 12 (N0): the plan steps with the norm of all: this op is ahead "
                 "of it");
  plan = ahead;
  replace(plan.schedule.lists[1], "N1", "M1");
  EXPECT_NE(refusal(plan).find("(M1): the plan steps ahead of the norm: this op waits for it"),
            std::string::npos)
      << refusal(plan);
  plan = ahead;
  drop(plan.schedule.lists[0], "V0");
  EXPECT_NE(refusal(plan).find("holds stage 0 and has no Validate of it: add one"),
            std::string::npos)
      << refusal(plan);
  plan = ahead;
  drop(plan.schedule.lists[1], ">v1@0");
  drop(plan.schedule.lists[0], "<v1@1");
  EXPECT_NE(refusal(plan).find("nothing can move after"), std::string::npos) << refusal(plan);
}

TEST(Check, TheUpdateStyleIsThatOfTheLists) {
  Plan plan = small_plan();
  plan.update.staggered = true;
  EXPECT_NE(refusal(plan).find("the plan steps ahead of the norm: this op waits for it"),
            std::string::npos)
      << refusal(plan);
  plan = with_update(small_plan(), true);
  plan.update.staggered = false;
  EXPECT_NE(refusal(plan).find("the plan steps with the norm of all: this op is ahead of it"),
            std::string::npos)
      << refusal(plan);
  plan = small_plan();
  plan.update.tied = true;
  EXPECT_EQ(refusal(plan),
            "the plan says that its first and last stage share a weight, and no group sums over "
            "both");
  plan = with_update_of_holders(std::move(plan));
  EXPECT_TRUE(check(plan).ok());
  plan.update.tied = false;
  EXPECT_EQ(refusal(plan),
            "the plan says that no stages share a weight, and a group sums over two");
}

TEST(Check, ForwardTwice) {
  Plan plan = small_plan();
  plan.schedule.lists[1].push_back(op_of("F1.0"));
  EXPECT_EQ(refusal(plan),
            "worker 1, op 15 (F1.0): F1.0 runs twice: worker 1 has it as op 1 too; drop one\n"
            "w1: <a0.0@0 F1.0 B1.0 >g1.0@0 W1.0 <a0.1@0 F1.1 B1.1 >g1.1@0 W1.1 R1:1 M1 >n1@0 <v0@0 "
            "U1 F1.0\n" +
                std::string(89, ' ') + "^");
}

TEST(Check, OneMicroDoubledAnotherLost) {
  Plan plan = small_plan();
  replace(plan.schedule.lists[0], "W0.1", "W0.0");
  expect_refused(plan, "worker 0, op 9 (W0.0): W0.0 runs twice");
}

TEST(Check, MissingWork) {
  Plan plan = small_plan();
  drop(plan.schedule.lists[0], "W0.1");
  expect_refused(plan, "no worker runs W0.1: add it to a list of a holder of stage 0\nw0: ");
}

TEST(Check, TruncatedLists) {
  for (size_t keep = 0; keep < 15; ++keep) {
    Plan plan = small_plan();
    plan.schedule.lists[0].resize(keep);
    EXPECT_FALSE(check(plan).ok()) << keep;
  }
}

TEST(Check, MissingMessages) {
  Plan plan = small_plan();
  drop(plan.schedule.lists[0], ">a0.1@1");
  expect_refused(plan, "worker 1, op 5 (<a0.1@0): worker 0 never sends a0.1 to worker 1");
  plan = small_plan();
  drop(plan.schedule.lists[0], "<g1.1@1");
  expect_refused(plan, "worker 1, op 8 (>g1.1@0): worker 0 never receives g1.1 from worker 1");
  plan = small_plan();
  plan.schedule.lists[0].insert(plan.schedule.lists[0].begin() + 2, op_of(">a0.0@1"));
  expect_refused(plan,
                 "worker 0, op 2 (>a0.0@1): a0.0 is sent twice between worker 0 and worker 1");
}

TEST(Check, ReceiveBehindItsReader) {
  Plan plan = small_plan();
  auto& list = plan.schedule.lists[1];
  std::swap(list[1], list[2]);  // B1.0 before F1.0
  const std::string message = refusal(plan);
  EXPECT_NE(message.find("nothing can move after"), std::string::npos) << message;
  EXPECT_NE(message.find("worker 1 waits at op 1 (B1.0) for stash 1.0, which its own op 2 (F1.0) "
                         "makes, behind it"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("\nw1: <a0.0@0 B1.0 F1.0"), std::string::npos) << message;
}

TEST(Check, AnUnreadMessageIsRefused) {
  Plan plan = small_plan();
  // An activation that its maker sends on but that the other side never reads.
  plan.schedule.lists[0].insert(plan.schedule.lists[0].begin(), op_of("<n1@1"));
  plan.schedule.lists[1].insert(plan.schedule.lists[1].begin(), op_of(">n1@0"));
  EXPECT_FALSE(check(plan).ok());
}

TEST(Check, UpdateOnceEverywhere) {
  Plan plan = small_plan(2);
  drop(plan.schedule.lists[3], "U1");
  expect_refused(plan, "worker 3: holds stage 1 and has no Step of it");
  plan = small_plan(2);
  drop(plan.schedule.lists[2], "R0:0");
  expect_refused(plan, "worker 2: does not take part in the reduction R0:0");
  plan = small_plan(2);
  plan.schedule.groups[1].members = {{1}};
  expect_refused(plan, "the members of group 1 are not the holders of its stages");
  plan = small_plan(2);
  plan.schedule.collectives[0].rounds.pop_back();
  expect_refused(plan,
                 "collective 0: worker 0 ends with 1 of 2 contributions in chunk 0: expected all");
}

TEST(Check, GradientOrder) {
  Plan plan = small_plan();
  plan.dispatch = Dispatch::Ready;
  for (auto& op : plan.schedule.lists[1]) {
    if (op.kind == OpKind::BackwardWeight) op.micro = {1 - op.micro.value};
  }
  expect_refused(plan, "worker 1, op 9 (W1.0): it stands behind micro-batch 1");
}

// Only ops that add to sums must be in order: forwards and input gradients may be in any order.
TEST(Check, OnlySummedOpsMustBeInOrder) {
  Plan plan = small_plan();
  plan.dispatch = Dispatch::Ready;
  for (auto& list : plan.schedule.lists) {
    for (auto& op : list) {
      const bool weight = op.kind == OpKind::BackwardWeight;
      if (has_micro(op) && !weight) op.micro = {1 - op.micro.value};
    }
  }
  plan.split_backward = true;
  EXPECT_TRUE(check(plan).ok());
  plan.split_backward = false;  // then input gradients make the sums
  const Status status = check(plan);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("under ready dispatch what is summed must stand"),
            std::string::npos)
      << status.error().message;
}

TEST(Check, Memory) {
  Plan plan = small_plan();
  plan.limits.assign(2, {1, 0});
  Status status = check(plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::Exhausted);
  EXPECT_EQ(status.error().reach, Reach::Worker);
  EXPECT_EQ(status.error().message.substr(0, 80),
            "worker 0, op 2 (F0.1): here it would hold 2 micro-batches, 1 more than its limit");
  plan.limits[0].micros = 2;
  EXPECT_TRUE(check(plan).ok());
}

TEST(Check, MemoryLimits) {
  Plan plan = small_plan();
  plan.limits.assign(2, {0, 0, {1999, 1000, 1000}});
  const Status status = check(plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::Exhausted);
  EXPECT_EQ(status.error().message.substr(0, 84),
            "worker 0, op 2 (F0.1): here it would hold 2000 and its memory limit is 1999 (a micro");
  plan.limits.assign(2, {0, 0, {2000, 1000, 1000}});
  EXPECT_TRUE(check(plan).ok());
  plan.limits[1].memory.late = 1001;
  EXPECT_NE(refusal(plan).find("takes 1001 after its input gradient and only 1000 before"),
            std::string::npos);
  plan.limits[1].memory = {kMostMemory + 1, 1, 1};
  EXPECT_NE(refusal(plan).find("has a memory limit above"), std::string::npos);
  // Under ready dispatch, with memory for one micro-batch the pipeline is slow; with less it hangs.
  plan = small_plan();
  plan.dispatch = Dispatch::Ready;
  plan.limits.assign(2, {0, 0, {1000, 1000, 500}});
  EXPECT_TRUE(check(plan).ok());
  plan.limits[1].memory.most = 999;
  EXPECT_NE(refusal(plan).find("nothing can move"), std::string::npos);
}

TEST(Check, UnknownStagesMicrosPeersAndGroupsAreRefused) {
  Plan plan = small_plan();
  replace(plan.schedule.lists[0], "F0.1", "F1.1");
  EXPECT_NE(refusal(plan).find("does not hold stage 1"), std::string::npos);
  plan = small_plan();
  replace(plan.schedule.lists[0], "F0.1", "F7.1");
  EXPECT_NE(refusal(plan).find("there is no stage 7 of 2"), std::string::npos);
  plan = small_plan();
  replace(plan.schedule.lists[0], "F0.1", "F0.9");
  EXPECT_NE(refusal(plan).find("there is no micro-batch 9"), std::string::npos);
  plan = small_plan();
  replace(plan.schedule.lists[0], ">a0.1@1", ">a0.1@0");
  EXPECT_NE(refusal(plan).find("the peer must be another worker"), std::string::npos);
  plan = small_plan();
  replace(plan.schedule.lists[0], "R0:0", "R0:5");
  EXPECT_NE(refusal(plan).find("there is no group 5"), std::string::npos);
  plan = small_plan();
  replace(plan.evaluation.lists[0], "E0.2", "F0.2");
  EXPECT_EQ(refusal(plan).substr(0, 12), "evaluation: ");
  plan = small_plan();
  plan.schedule.micro_count = 2000000000;
  EXPECT_NE(refusal(plan).find("no worker runs"), std::string::npos);
  plan = small_plan();
  plan.stages[1].layer_first = 0;
  EXPECT_NE(refusal(plan).find("stage 1 has layers 0 to 2"), std::string::npos);
}

// Two reductions in different orders at two workers wait for each other.
TEST(Check, CrossedReductions) {
  Shape shape;
  shape.stages = shape.layers = 2;
  shape.pipelines = 2;
  shape.tied = true;
  auto plan = make_plan(shape);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(check(plan.value()).ok());
  auto& list = plan.value().schedule.lists[0];
  const auto first = std::find(list.begin(), list.end(), op_of("R0/0:0"));
  ASSERT_NE(first, list.end());
  std::swap(*first, *(first + 1));
  EXPECT_NE(refusal(plan.value()).find("nothing can move"), std::string::npos);
}

}  // namespace
}  // namespace tenuto
