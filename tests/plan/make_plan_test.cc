// Plans from shapes: right, equal to the golden files, and refused with clear messages.
#include "plan/make_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "ir/golden.h"
#include "ir/text.h"
#include "plan/lower.h"

namespace tenuto {
namespace {

Shape shape_of(int32_t stages, int32_t pipelines, int32_t micros, const std::string& order) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = order;
  return shape;
}

TEST(MakePlan, Golden) {
  const auto golden = [](const std::string& name, const Shape& shape) {
    const auto plan = make_plan(shape);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    expect_golden("plan/golden/" + name + ".sched", to_text(plan.value().schedule));
    if (shape.evaluation_micros == 0) return;
    expect_golden("plan/golden/" + name + "-evaluation.sched", to_text(plan.value().evaluation));
  };
  golden("gpipe-3x1x3", shape_of(3, 1, 3, "gpipe"));
  golden("1f1b-2x2x2", shape_of(2, 2, 2, "1f1b"));
  golden("1f1b-4x1x8", shape_of(4, 1, 8, "1f1b"));
  golden("zb-h1-4x1x6", shape_of(4, 1, 6, "zb-h1"));
  for (const char* order : {"interleaved", "zb-v"}) {
    Shape chunked = shape_of(2, 2, 2, order);
    chunked.layers = 4;
    chunked.evaluation_micros = 3;
    golden(std::string(order) + "-2x2x2", chunked);
  }
  Shape tied = shape_of(3, 2, 2, "1f1b");
  tied.tied = true;
  tied.evaluation_micros = 3;
  golden("1f1b-tied-3x2x2", tied);
  Shape ahead = shape_of(3, 2, 2, "1f1b");
  ahead.staggered = true;
  golden("1f1b-staggered-3x2x2", ahead);
}

// Changes one kind of update into the other and back. With a single stage there is only one kind.
TEST(MakePlan, TheUpdateCanBeChanged) {
  for (const OrderCard& card : order_cards()) {
    for (const int32_t stages : {1, 2, 3}) {
      Shape shape = shape_of(stages, 2, 2 * stages, card.name);
      shape.layers = stages * card.chunks;
      shape.tied = stages > 1 && card.placement != Placement::V;
      const Plan barrier = make_plan(shape).value();
      shape.staggered = true;
      const Plan ahead = make_plan(shape).value();
      EXPECT_EQ(ahead.update.staggered, shape.layers > 1) << card.name;
      EXPECT_FALSE(barrier.update.staggered);
      EXPECT_EQ(with_update(barrier, true), ahead) << card.name;
      EXPECT_EQ(with_update(ahead, false), barrier) << card.name;
      EXPECT_EQ(with_update(ahead, true), ahead);
    }
  }
}

// Every small shape makes a plan that check accepts, whatever the other settings.
TEST(MakePlan, EverySmallShapeIsRight) {
  Random random(17);
  for (const OrderCard& card : order_cards()) {
    for (int32_t stages = 1; stages <= 5; ++stages) {
      for (int32_t pipelines = 1; pipelines <= 4; ++pipelines) {
        for (int32_t micros = 1; micros <= 7; ++micros) {
          Shape shape = shape_of(stages, pipelines, micros, card.name);
          if (card.refusal != nullptr) shape.micros += 2 * stages;
          if (card.placement == Placement::Loop) {
            shape.chunks = 1 + static_cast<int32_t>(random.below(3));
          }
          shape.layers =
              stages * std::max(shape.chunks, card.chunks) + static_cast<int32_t>(random.below(4));
          shape.tied = random.below(2) == 0 && stages > 1 && card.placement != Placement::V;
          shape.dispatch = random.below(2) == 0 ? Dispatch::Ready : Dispatch::Listed;
          shape.evaluation_micros = static_cast<int32_t>(random.below(6));
          shape.staggered = random.below(3) == 0;
          shape.memory = random.below(2) == 0 ? 0 : 2 * stages + micros;
          const auto plan = make_plan(shape);
          ASSERT_TRUE(plan.ok()) << plan.error().message;
          const Status status = check(plan.value());
          ASSERT_TRUE(status.ok()) << card.name << " " << stages << " " << pipelines << " "
                                   << micros << ": " << status.error().message;
          EXPECT_EQ(make_plan(shape).value(), plan.value());
        }
      }
    }
  }
}

// After a micro-batch is given to a worker of another pipeline, the same passes complete the plan.
TEST(MakePlan, WorkMovesToAnotherWorker) {
  const auto made = make_plan(shape_of(3, 2, 3, "1f1b"));
  ASSERT_TRUE(made.ok());
  Plan plan = made.value();
  for (auto& list : plan.schedule.lists) {
    list.erase(std::remove_if(list.begin(), list.end(),
                              [](const Op& op) {
                                return op.micro.value < 0 || op.kind == OpKind::Send ||
                                       op.kind == OpKind::Recv;
                              }),
               list.end());
  }
  // Worker 4 (stage 1 of pipeline 1) takes micro-batch 2 from worker 1, in the global order.
  auto& from = plan.schedule.lists[1];
  auto& to = plan.schedule.lists[4];
  for (auto op = from.begin(); op != from.end();) {
    if (op->micro.value != 2) {
      ++op;
      continue;
    }
    const auto place = std::find_if(to.begin(), to.end(), [&](const Op& other) {
      return other.kind == op->kind && other.micro.value > 2;
    });
    to.insert(place, *op);
    op = from.erase(op);
  }
  plan.schedule.groups.clear();
  plan.schedule.collectives.clear();
  insert_messages(plan.schedule);
  append_update(plan);
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    plan.dispatch = dispatch;
    const Status status = check(plan);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  EXPECT_NE(to_text(plan.schedule).find("<a0.2@0"), std::string::npos);
}

TEST(MakePlan, Limits) {
  Shape shape = shape_of(4, 1, 8, "1f1b");
  shape.dispatch = Dispatch::Ready;
  const Plan plan = make_plan(shape).value();
  ASSERT_EQ(plan.limits.size(), 4u);
  for (int32_t s = 0; s < 4; ++s) {
    EXPECT_EQ(plan.limits[static_cast<size_t>(s)], (Limit{4 - s, 4 - s}));
  }
}

// Each all-reduce by name, also in tied groups; the plan survives text and JSON, and its update can
// be made again from what was read.
TEST(MakePlan, SumsAsTheShapeSays) {
  for (const char* name : {"ring", "halving", "tree", "direct", "late-one", "auto"}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << name << (tied ? " tied" : ""));
      Shape shape = shape_of(2, 5, 2, "1f1b");
      shape.all_reduce = name;
      shape.tied = tied;
      const Plan plan = make_plan(shape).value();
      EXPECT_TRUE(check(plan).ok());
      ASSERT_EQ(plan.schedule.groups.size(), tied ? 3u : 2u);
      for (const Group& group : plan.schedule.groups) {
        EXPECT_EQ(group.summing.algorithm, name == std::string("auto") ? "ring" : name);
      }
      const auto from_text = schedule_from_text(to_text(plan.schedule), "text");
      ASSERT_TRUE(from_text.ok()) << from_text.error().message;
      EXPECT_EQ(from_text.value(), plan.schedule);
      const auto from_json = plan_from_json(to_json(plan), "json");
      ASSERT_TRUE(from_json.ok()) << from_json.error().message;
      EXPECT_EQ(from_json.value(), plan);
      EXPECT_EQ(with_update_of_holders(from_json.value()), plan);
      EXPECT_EQ(with_update(with_update(plan, true), false), plan);
    }
  }
}

// with_summing() sets the all-reduce of one group; a late worker that is no member, or an unknown
// name, gives the ring.
TEST(MakePlan, ChosenSums) {
  Shape shape = shape_of(2, 4, 2, "1f1b");
  shape.all_reduce = "auto";
  const Plan plan = make_plan(shape).value();
  const Summing chosen{"late-one", {3}, 7};
  const Plan late = with_summing(plan, {{1}}, chosen);
  EXPECT_TRUE(check(late).ok());
  EXPECT_EQ(late.schedule.groups[0].summing, Summing{});
  EXPECT_EQ(late.schedule.groups[1].summing, chosen);
  EXPECT_EQ(late.schedule.collectives[1].chunk_count, 7);
  EXPECT_NE(to_text(late.schedule).find("collective 1 by late-one chunks 7 late 3\n"),
            std::string::npos);
  EXPECT_EQ(schedule_from_text(to_text(late.schedule), "text").value(), late.schedule);
  EXPECT_EQ(plan_from_json(to_json(late), "json").value(), late);
  EXPECT_EQ(with_update_of_holders(late), late);
  EXPECT_EQ(with_summing(late, {{1}}, {}), plan);
  EXPECT_EQ(with_summing(plan, {{1}}, {"late-one", {2}, 7}), plan);  // no holder of that stage
  EXPECT_EQ(with_summing(plan, {{1}}, {"late", {3}, 7}), plan);
}

TEST(MakePlan, Refusals) {
  const auto message = [](const Shape& shape, Code code) {
    const auto plan = make_plan(shape);
    EXPECT_FALSE(plan.ok());
    if (plan.ok()) return std::string();
    EXPECT_EQ(plan.error().code, code);
    return plan.error().message;
  };
  std::string known;  // made from the cards, so that a new order needs no change here
  for (const OrderCard& card : order_cards()) known += (known.empty() ? "" : ", ") + card.name;
  EXPECT_EQ(message(shape_of(2, 1, 2, "1f1c"), Code::Invalid),
            "order '1f1c' is not known, did you mean 1f1b? (known: " + known + " and auto)");
  Shape sums = shape_of(2, 2, 2, "1f1b");
  sums.all_reduce = "halfing";
  EXPECT_EQ(message(sums, Code::Invalid),
            "all-reduce 'halfing' cannot be used by a plan, did you mean halving? (known: "
            "auto, late-one, ring, halving, tree, direct)");
  sums.all_reduce = "broadcast";
  EXPECT_NE(message(sums, Code::Invalid).find("cannot be used by a plan"), std::string::npos);
  EXPECT_EQ(message(shape_of(0, 1, 2, "1f1b"), Code::Invalid), "stages is 0: expected 1 to 16384");
  // Their sums would have 33 million messages each.
  EXPECT_EQ(message(shape_of(1, 4097, 2, "1f1b"), Code::Invalid),
            "pipelines is 4097: expected 1 to 4096");
  EXPECT_EQ(message(shape_of(2, 1, -1, "1f1b"), Code::Invalid),
            "micros is -1: expected 1 to 1000000");
  EXPECT_NE(message(shape_of(2000, 2000, 2000, "1f1b"), Code::Invalid).find("ask for fewer"),
            std::string::npos);
  Shape shape = shape_of(4, 1, 8, "gpipe");
  shape.memory = 4;
  EXPECT_EQ(message(shape, Code::Exhausted),
            "order gpipe with 4 stages and 8 micro-batches a pipeline holds up to 8 of them at "
            "worker 0, and memory allows 4: raise memory to 8 or take another order");
  shape.order = "1f1b";
  EXPECT_TRUE(make_plan(shape).ok());
  shape.memory = 3;
  EXPECT_NE(message(shape, Code::Exhausted).find("raise memory to 4"), std::string::npos);
  shape.layers = 3;
  EXPECT_NE(message(shape, Code::Invalid).find("the model has 3 layers"), std::string::npos);
  shape.layers = 4;
  shape.layer_cost = {1, 2};
  EXPECT_NE(message(shape, Code::Invalid).find("layer_cost has 2 numbers"), std::string::npos);
}

TEST(MakePlan, RefusalsOfChunks) {
  const auto message = [](const Shape& shape) {
    const auto plan = make_plan(shape);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? std::string() : plan.error().message;
  };
  Shape shape = shape_of(4, 1, 8, "1f1b");
  shape.chunks = 2;
  EXPECT_EQ(message(shape), "order 1f1b: chunks is 2: its workers hold 1 stage each");
  shape.order = "zb-v";
  shape.chunks = 3;
  EXPECT_EQ(message(shape), "order zb-v: chunks is 3: its workers hold 2 stages each");
  shape.chunks = 0;
  EXPECT_EQ(message(shape),
            "order zb-v: the model has 4 layers and 4 workers with 2 chunks each need at least 8: "
            "ask for fewer workers or chunks");
  shape.layers = 8;
  shape.tied = true;
  EXPECT_EQ(
      message(shape),
      "order zb-v: it puts the first and the last stage on one worker, and a weight that both "
      "share is supported between two workers only: set model.tied = false or take another "
      "order");
  shape.tied = false;
  shape.order = "dualpipe-v";
  shape.micros = 7;
  EXPECT_EQ(message(shape),
            "order dualpipe-v: it needs at least 2 micro-batches for each of the 4 workers of a "
            "pipeline, found 7: give micros >= 8 or take zb-v");
  shape.order = "zb-v";
  shape.micros = 8;
  shape.memory = 3;
  EXPECT_NE(message(shape).find("raise memory to 4"), std::string::npos);
  shape.memory = 4;
  EXPECT_TRUE(make_plan(shape).ok());
}

}  // namespace
}  // namespace tenuto
