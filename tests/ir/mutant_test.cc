// Changes valid plans of every order at random. `check` must agree on every one with an executor
// that runs it in threads and shares only effect_of with check.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/random.h"
#include "ir/check.h"
#include "ir/executor.h"
#include "ir/text.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Sanitizers make every run several times as long; a quarter of them still shows every ending.
constexpr int kMutantsOfAPlan = kSanitized ? 30 : 130;

// Counts of the mutants by their ending.
struct Tally {
  int accepted = 0, refused = 0;
  std::array<int, 4> endings{};  // by Ending
  int of(Ending ending) const { return endings[static_cast<size_t>(ending)]; }
};

// A plan of this shape, with more micro-batches if the order needs them, and untied if it must be.
Plan plan_of(Shape shape) {
  shape.layers = 4 * shape.stages;
  std::string refusal;
  for (const int32_t micros : {shape.micros, 2 * shape.stages, 4 * shape.stages}) {
    for (const bool tied : {shape.tied, false}) {
      shape.micros = micros;
      shape.tied = tied;
      const auto plan = make_plan(shape);
      if (plan.ok()) return plan.value();
      refusal = plan.error().message;
    }
  }
  ADD_FAILURE() << refusal;
  return {};
}

// The plans of an order that are mutated, each with listed and with ready dispatch.
std::vector<Plan> plans_of(const OrderCard& card) {
  std::vector<Plan> plans;
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    for (const auto& [stages, pipelines, micros] :
         {std::tuple(1, 1, 2), std::tuple(2, 1, 3), std::tuple(3, 1, 2), std::tuple(2, 2, 2)}) {
      Shape shape;
      shape.stages = stages;
      shape.pipelines = pipelines;
      shape.micros = micros;
      shape.order = card.name;
      shape.split_backward = card.splits_backward;
      shape.dispatch = dispatch;
      shape.tied = pipelines == 2;
      plans.push_back(plan_of(shape));
      if (micros == 3) plans.push_back(with_update(plans.back(), true));
    }
  }
  return plans;
}

// A number of 0 .. end - 1 other than `before`, if there is one.
int32_t another(Random& random, int32_t before, int32_t end) {
  const auto drawn = static_cast<int32_t>(random.below(std::max(end - 1, 1)));
  return drawn < before || end < 2 ? drawn : drawn + 1;
}

// Changes one field of an op; returns which.
std::string change(const Plan& plan, Op& op, Random& random) {
  const Schedule& schedule = plan.schedule;
  const int64_t choice = random.below(3);
  const bool message = op.kind == OpKind::Send || op.kind == OpKind::Recv;
  if (choice == 0 && message) {
    const auto workers = static_cast<int32_t>(schedule.lists.size());
    op.peer.value = another(random, op.peer.value, workers);
    return "peer";
  }
  if (choice == 0 && op.kind == OpKind::Reduce) {
    const auto groups = static_cast<int32_t>(schedule.groups.size());
    op.group.value = another(random, op.group.value, groups);
    return "group";
  }
  if (choice == 1 && op.micro.value >= 0) {
    op.micro.value = another(random, op.micro.value, schedule.micro_count);
    return "micro-batch";
  }
  op.stage.value = another(random, op.stage.value, schedule.stage_count);
  return "stage";
}

// Makes one random change in one list; returns what was done.
std::string mutate(Plan& plan, Random& random) {
  const auto worker =
      static_cast<size_t>(random.below(static_cast<int64_t>(plan.schedule.lists.size())));
  auto& list = plan.schedule.lists[worker];
  const auto count = static_cast<int64_t>(list.size());
  const auto from = static_cast<std::ptrdiff_t>(random.below(count));
  const Op op = list[static_cast<size_t>(from)];
  std::string deed;
  switch (random.below(6)) {
    case 0:
      list.erase(list.begin() + from);
      deed = "deleted";
      break;
    case 1:
      list.insert(list.begin() + random.below(count + 1), op);
      deed = "doubled";
      break;
    case 2:
      if (from + 1 < count) std::swap(list[static_cast<size_t>(from)], list[size_t(from) + 1]);
      deed = "swapped with the next";
      break;
    case 3:
      list.erase(list.begin() + from);
      list.insert(list.begin() + random.below(count), op);
      deed = "moved";
      break;
    default:
      deed = "given another " + change(plan, list[static_cast<size_t>(from)], random);
  }
  return "worker " + std::to_string(worker) + ", op " + std::to_string(from) + " " + deed;
}

void judge(const Plan& mutant, const std::string& what, uint64_t seed, Tally& tally) {
  const Status status = check(mutant);
  const Judgement judgement = run_in_threads(mutant, seed);
  ++(status.ok() ? tally.accepted : tally.refused);
  ++tally.endings[static_cast<size_t>(judgement.ending)];
  EXPECT_EQ(status.ok(), judgement.ending == Ending::Right)
      << mutant.order << (mutant.dispatch == Dispatch::Ready ? ", ready, " : ", listed, ") << what
      << "\nthe executor says: " << (judgement.fault.empty() ? "fine" : judgement.fault)
      << "\ncheck says: " << (status.ok() ? "fine" : status.error().message) << "\n"
      << to_text(mutant.schedule);
}

class MutantsOf : public testing::TestWithParam<std::string> {};

TEST_P(MutantsOf, CheckAndThreadsAgree) {
  const OrderCard& card = *find_card(GetParam());
  Tally tally;
  uint64_t seed = 0;
  for (const Plan& plan : plans_of(card)) {
    judge(plan, "as it was made", ++seed, tally);
    EXPECT_EQ(tally.refused, tally.accepted + tally.refused - tally.of(Ending::Right));
    for (int i = 0; i < kMutantsOfAPlan; ++i) {
      Random random(++seed);
      Plan mutant = plan;
      const std::string what = mutate(mutant, random);
      judge(mutant, "seed " + std::to_string(seed) + ", " + what, seed, tally);
      if (testing::Test::HasFailure()) return;  // one is enough to look at
    }
  }
  std::printf("%-14s %5d plans: %4d accepted, %4d refused", card.name.c_str(),
              tally.accepted + tally.refused, tally.accepted, tally.refused);
  std::printf(" (%d hang, %d lose or double work, %d break order or limits)\n",
              tally.of(Ending::Hangs), tally.of(Ending::Work), tally.of(Ending::Rules));
  EXPECT_GT(tally.accepted, kMutantsOfAPlan);
  EXPECT_GT(tally.of(Ending::Hangs), kMutantsOfAPlan);
  EXPECT_GT(tally.of(Ending::Work), kMutantsOfAPlan / 2);
}

std::vector<std::string> order_names() {
  std::vector<std::string> names;
  for (const OrderCard& card : order_cards()) names.push_back(card.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Orders, MutantsOf, testing::ValuesIn(order_names()),
                         [](const auto& order) {
                           std::string name = order.param;
                           std::erase(name, '-');
                           return name;
                         });

// A plan ends the same however the threads are scheduled, so one walk by `check` is enough.
TEST(Mutants, EveryRunEndsTheSame) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Shape shape;
    shape.stages = 3;
    shape.pipelines = 2;
    shape.micros = 3;
    shape.order = order_cards()[seed % order_cards().size()].name;
    shape.dispatch = Dispatch::Ready;
    Plan plan = plan_of(shape);
    EXPECT_EQ(run_in_threads(plan, seed).fault, "");
    // Worker 2 needs three forwards for its warm-up, but worker 0 may hold only two micro-batches.
    plan.limits[2].warm_up = 3;
    plan.limits[2].micros = 3;
    plan.limits[0].micros = 2;
    plan.limits[0].warm_up = 1;
    EXPECT_EQ(run_in_threads(plan, seed).ending, Ending::Hangs);
    EXPECT_FALSE(check(plan).ok());
  }
}

}  // namespace
}  // namespace tenuto
