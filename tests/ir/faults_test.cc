// Seven faults that validators and tools for schedules are known to have. Ours does not have them.
#include <gtest/gtest.h>

#include <type_traits>

#include "ir/check.h"
#include "ir/text.h"
#include "ir/torch_csv.h"
#include "plan/given_plan.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "sim/price.h"

namespace tenuto {
namespace {

Result<Plan> plan_of(std::string_view csv) {
  const auto read = schedule_from_csv(csv, "x.csv");
  if (!read.ok()) return read.error();
  Shape shape;
  shape.layers = read.value().schedule.stage_count;
  shape.split_backward = read.value().splits;
  return make_given_plan({read.value().schedule, read.value().messages}, shape);
}

std::string refusal(std::string_view csv) {
  const auto plan = plan_of(csv);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  if (!plan.ok()) return plan.error().message;
  const Status status = check(plan.value());
  EXPECT_FALSE(status.ok()) << csv;
  return status.ok() ? "" : status.error().message;
}

bool says(const std::string& message, std::string_view what) {
  return message.find(what) != std::string::npos;
}

// 1. The dependence rule is written in several places, one of which lets a weight gradient run at
// any time.
TEST(Faults, WeightGradientBeforeItsInput) {
  const std::string message = refusal("0F0,0W0,0I0\n");
  EXPECT_TRUE(says(message,
                   "worker 0 waits at op 1 (W0.0) for weight work 0.0, which its own op 2 "
                   "(B0.0) makes, behind it"))
      << message;
  EXPECT_TRUE(says(message, "\nw0: F0.0 W0.0 B0.0")) << message;
}

// 2. Sets hide doubled work: here the counts of ops are right although some are doubled.
TEST(Faults, DoubledWork) {
  EXPECT_TRUE(says(refusal("0F0,0F0,0F1,0B0,0B1\n"), "F0.0 runs twice"));
  const std::string mixed = refusal("0F0,0F1,0B0,0I0,0W0\n");
  EXPECT_TRUE(says(mixed, "op 4 (B0.0): B0.0 runs twice: worker 0 has it as op 2 too")) << mixed;
  EXPECT_TRUE(says(refusal("0F0,0F1,0I0,0W0,0I1,0W0\n"), "W0.0 runs twice"));
}

// 3. A file that places its messages itself is checked less. Here it is checked as fully.
TEST(Faults, MessagesAreChecked) {
  EXPECT_EQ(plan_of("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n").ok(), true);
  EXPECT_TRUE(says(refusal("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
                   "worker 0 never sends a0.0 to worker 1"));
  EXPECT_TRUE(says(refusal("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n"),
                   "worker 1 never sends g1.0 to worker 0"));
  EXPECT_TRUE(says(refusal("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
                   "sent twice"));
  // Sends of one direction leave in list order: one that stands too early holds up the rest.
  const std::string crossed = refusal(
      "0F0,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_TRUE(says(crossed, "which worker 0 sends as op 2 (>a0.0@1) to op 0 (<a0.0@0)")) << crossed;
  EXPECT_TRUE(says(crossed,
                   "worker 0 waits at op 1 (>a0.1@1) for a0.1, which its own op 6 (F0.1) "
                   "makes, behind it"))
      << crossed;
}

// 4. Lists are compared up to the end of the shorter one, so cut-off ops are overlooked.
TEST(Faults, TruncatedLists) {
  Shape shape;
  shape.stages = shape.layers = 3;
  shape.micros = 4;
  const Plan plan = make_plan(shape).value();
  const std::string csv = to_csv(plan, {}).value();
  ASSERT_TRUE(plan_of(csv).ok());
  for (size_t comma = csv.rfind(','); comma != std::string::npos && comma > 0;
       comma = csv.rfind(',', comma - 1)) {
    const size_t end = csv.find('\n', comma);
    const auto cut = plan_of(csv.substr(0, comma) + csv.substr(end));
    EXPECT_FALSE(cut.ok() && check(cut.value()).ok()) << csv.substr(0, comma);
  }
  EXPECT_NE(to_text(plan.schedule), to_text(plan_of("0F0,0B0").value().schedule));
}

// 5. The price is computed in two places: in one, a whole backward costs only its input half.
TEST(Faults, WholeBackwardCostsBothHalves) {
  Shape shape;
  shape.stages = shape.layers = shape.micros = 2;
  const Plan plan = make_plan(shape).value();
  Model model;
  Layer layer;
  layer.forward = from_milliseconds(1);
  layer.backward_input = from_milliseconds(2);
  layer.backward_weight = from_milliseconds(3);
  model.layers.assign(2, layer);
  PriceOptions options;
  options.update = false;
  const auto timeline = price(plan, model, uniform_cluster(2, {}), options);
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline.value().makespan, from_milliseconds(18));
}

// 6. One record holds everything. Here an op holds only what it is, neither its time nor its place.
TEST(Faults, OpsAreSmall) {
  EXPECT_TRUE(std::is_trivially_copyable_v<Op>);
  EXPECT_LE(sizeof(Op), 24u);
}

// 7. Passes read settings from elsewhere. Ours give equal results for equal arguments, whatever ran
// before.
TEST(Faults, PassesAreFunctions) {
  Shape shape;
  shape.stages = shape.layers = 3;
  shape.micros = 5;
  const Plan first = make_plan(shape).value();
  Shape other = shape;
  other.pipelines = 2;
  other.tied = true;
  ASSERT_TRUE(make_plan(other).ok());
  EXPECT_EQ(make_plan(shape).value(), first);
  Schedule bare = schedule_from_csv(to_csv(first, {}).value(), "x.csv").value().schedule;
  Schedule again = bare;
  insert_messages(bare);
  ASSERT_TRUE(make_plan(other).ok());
  insert_messages(again);
  EXPECT_EQ(bare, again);
}

// A deadlock over two workers is explained link by link, each with the op that should have come
// first.
TEST(Faults, CircleIsExplained) {
  const std::string message = refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_TRUE(
      says(message,
           "worker 0 waits at op 3 (B0.0) for g1.0, which worker 1 sends as op 5 "
           "(>g1.0@0) to op 2 (<g1.0@1) after op 4 (B1.0); worker 1 waits at op 3 (F1.1) for a0.1, "
           "which "
           "worker 0 sends as op 6 (>a0.1@1) to op 2 (<a0.1@0) after op 5 (F0.1): a circle"))
      << message;
}

// The message for a value that no op makes says so.
TEST(Faults, AValueThatNoOpMakesIsNamed) {
  const std::string message = refusal("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0\n");
  EXPECT_TRUE(says(message, "worker 0 waits at op 2 (B0.0) for g1.0, which nobody makes"))
      << message;
}

TEST(Faults, OverTheLimit) {
  Shape shape;
  shape.stages = shape.layers = 2;
  shape.micros = 4;
  shape.order = "gpipe";
  Plan plan = make_plan(shape).value();
  plan.limits.assign(2, {3, 0});
  Sizes sizes;
  sizes.of.resize(2);
  for (auto& of : sizes.of) of[static_cast<size_t>(ValueKind::Stash)] = {1000};
  const Status status = check(plan, sizes);
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(says(status.error().message,
                   "worker 0, op 6 (F0.3): here it would hold 4 micro-batches, 1 more than its "
                   "limit of 3 (4000 bytes, 1000 more than that): raise the limit to 4"))
      << status.error().message;
}

// One worker holds the first stage and the last.
TEST(Faults, SeveralStagesOfAWorkerAreRight) {
  const auto plan = plan_of("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const Status status = check(plan.value());
  EXPECT_TRUE(status.ok()) << status.error().message;
}

// Backwards may run in descending order, as in breadth-first schedules; a notice says so.
TEST(Faults, BackwardMayDescend) {
  const auto plan = plan_of("0F0,0F1,0F2,0B2,0B1,0B0\n1F0,1F1,1F2,1B2,1B1,1B0\n");
  ASSERT_TRUE(plan.ok());
  const Status status = check(plan.value());
  EXPECT_TRUE(status.ok()) << status.error().message;
  const auto told = notices(plan.value());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(says(told[0], "worker 0 adds W0.2 before W0.1, as it does in 1 more stages"))
      << told[0];
  EXPECT_TRUE(notices(plan_of("0F0,0F1,0B0,0B1").value()).empty());
}

}  // namespace
}  // namespace tenuto
