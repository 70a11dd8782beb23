// Every list of small plans is changed in every place; `check` and an executor that shares only
// effect_of with it must agree on every one of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "ir/check.h"
#include "ir/executor.h"
#include "ir/text.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

struct Tally {
  int accepted = 0, refused = 0;
};

void judge(const Plan& mutant, const std::string& what, Tally& tally) {
  const Status status = check(mutant);
  const std::string fault = run_plainly(mutant, 7);
  ++(status.ok() ? tally.accepted : tally.refused);
  EXPECT_EQ(status.ok(), fault.empty())
      << what << "\nthe executor says: " << (fault.empty() ? "fine" : fault)
      << "\ncheck says: " << (status.ok() ? "fine" : status.error().message) << "\n"
      << to_text(mutant.schedule);
}

void mutate(const Plan& plan, Tally& tally) {
  Random random(11);
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    const auto count = static_cast<std::ptrdiff_t>(plan.schedule.lists[w].size());
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const std::string place = "worker " + std::to_string(w) + " op " + std::to_string(i);
      Plan mutant = plan;
      auto* list = &mutant.schedule.lists[w];
      list->erase(list->begin() + i);
      judge(mutant, place + " deleted", tally);

      mutant = plan;
      list = &mutant.schedule.lists[w];
      list->insert(list->begin() + i, (*list)[static_cast<size_t>(i)]);
      judge(mutant, place + " doubled", tally);

      mutant = plan;
      list = &mutant.schedule.lists[w];
      if (i + 1 < count)
        std::swap((*list)[static_cast<size_t>(i)], (*list)[static_cast<size_t>(i) + 1]);
      judge(mutant, place + " swapped", tally);

      mutant = plan;
      list = &mutant.schedule.lists[w];
      const Op op = (*list)[static_cast<size_t>(i)];
      list->erase(list->begin() + i);
      list->insert(list->begin() + random.below(count), op);
      judge(mutant, place + " moved", tally);

      mutant = plan;
      list = &mutant.schedule.lists[w];
      list->resize(static_cast<size_t>(i));
      judge(mutant, place + " and all behind it cut off", tally);
    }
  }
}

Tally mutate_all(Dispatch dispatch) {
  Tally tally;
  for (const OrderCard& card : order_cards()) {
    for (const auto& [stages, pipelines, micros] :
         {std::tuple(1, 1, 2), std::tuple(2, 1, 3), std::tuple(3, 1, 2), std::tuple(2, 2, 2)}) {
      Shape shape;
      shape.stages = shape.layers = stages;
      shape.pipelines = pipelines;
      shape.micros = micros;
      shape.order = card.name;
      shape.dispatch = dispatch;
      shape.tied = pipelines == 2;
      const auto plan = make_plan(shape);
      EXPECT_TRUE(plan.ok());
      EXPECT_EQ(run_plainly(plan.value(), 1), "");
      mutate(plan.value(), tally);
    }
  }
  return tally;
}

TEST(Mutants, Listed) {
  const Tally tally = mutate_all(Dispatch::Listed);
  RecordProperty("accepted", tally.accepted);
  RecordProperty("refused", tally.refused);
  EXPECT_GT(tally.accepted, 100);
  EXPECT_GT(tally.refused, 1000);
}

TEST(Mutants, Ready) {
  const Tally tally = mutate_all(Dispatch::Ready);
  EXPECT_GT(tally.accepted, 100);
  EXPECT_GT(tally.refused, 1000);
}

// However the picks fall, a plan runs the same ops: what makes one run of `check` enough.
TEST(Mutants, EveryPickEndsTheSame) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Shape shape;
    shape.stages = shape.layers = 3;
    shape.pipelines = 2;
    shape.micros = 3;
    shape.order = order_cards()[seed % order_cards().size()].name;
    shape.dispatch = Dispatch::Ready;
    auto plan = make_plan(shape);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(run_plainly(plan.value(), seed), "");
    // A warm-up that the limits of the stages before cannot feed is stuck, always.
    plan.value().limits[2].warm_up = 3;
    plan.value().limits[2].micros = 3;
    plan.value().limits[0].micros = 2;
    plan.value().limits[0].warm_up = 1;
    EXPECT_NE(run_plainly(plan.value(), seed), "");
    EXPECT_FALSE(check(plan.value()).ok());
  }
}

}  // namespace
}  // namespace tenuto
