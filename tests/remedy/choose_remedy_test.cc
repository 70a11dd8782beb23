// One decision about all troubles: what is compared, at which prices, and what is chosen.
#include "remedy/choose_remedy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/random.h"
#include "ir/check.h"
#include "plan/fine_stages.h"
#include "plan/make_plan.h"
#include "plan/routed.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

Plan plan_of(int32_t workers, int32_t pipelines, int32_t layers, int32_t micros) {
  Shape shape;
  shape.stages = workers;
  shape.pipelines = pipelines;
  shape.layers = layers;
  shape.micros = micros;
  shape.order = "1f1b";
  return make_plan(shape).value();
}

Plan fine_plan(int32_t workers, int32_t pipelines, int32_t layers, int32_t micros) {
  return with_fine_stages(plan_of(workers, pipelines, layers, micros)).value();
}

Model model_of(int32_t layers, int64_t parameter_bytes = 1000) {
  Model model;
  Layer layer{.forward = kMillisecond, .backward_input = 2 * kMillisecond};
  layer.parameters = {parameter_bytes};
  model.layers.assign(static_cast<size_t>(layers), layer);
  return model;
}

Cluster healthy_cluster(int32_t workers) {
  return uniform_cluster(workers, {kMillisecond / 10, 1e9});
}

RemedyTerms terms_of(int64_t lasted, int64_t left) {
  RemedyTerms terms;
  terms.routes = terms.layers = true;
  terms.troubles.lasted = lasted;
  terms.left = left;
  return terms;
}

const Alternative& chosen_of(const RemedyChoice& choice) {
  return *std::find_if(choice.alternatives.begin(), choice.alternatives.end(),
                       [](const Alternative& one) { return one.chosen; });
}

bool offers(const RemedyChoice& choice, const std::string& part) {
  return std::any_of(
      choice.alternatives.begin(), choice.alternatives.end(),
      [&](const Alternative& one) { return one.name.find(part) != std::string::npos; });
}

// Compares all that a choice says with the prices of its plan.
void expect_consistent(const RemedyChoice& choice, const Plan& present, const Model& model,
                       const Cluster& now) {
  ASSERT_FALSE(choice.alternatives.empty());
  EXPECT_EQ(std::count_if(choice.alternatives.begin(), choice.alternatives.end(),
                          [](const Alternative& one) { return one.chosen; }),
            1);
  const Alternative& chosen = chosen_of(choice);
  // Moves of layers that make a step less than 2 % shorter are not taken.
  for (const Alternative& one : choice.alternatives) {
    EXPECT_GE(one.total_ms, 0.98 * chosen.total_ms);
  }
  const Plan& plan = choice.plan ? *choice.plan : present;
  ASSERT_TRUE(check(plan).ok());
  EXPECT_EQ(whole_step_time(plan, model, now).value(), chosen.step);
  std::vector<Stage> stages = present.stages;
  move_layers(stages, choice.moves);
  EXPECT_EQ(stages, plan.stages);
}

TEST(ChooseRemedy, KeepsThePlanOfAHealthyCluster) {
  const Plan plan = fine_plan(3, 2, 9, 4);
  const auto choice = choose_remedy(plan, model_of(9), healthy_cluster(6), terms_of(1000, 1000));
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_EQ(choice.value().plan, nullptr);
  EXPECT_EQ(chosen_of(choice.value()).name, "the present plan");
  EXPECT_EQ(choice.value().pays_after, -1);
}

// A move that costs nothing is still one that must pay, and does.
TEST(ChooseRemedy, MovesLayersThatCostNothing) {
  const Plan plan = fine_plan(4, 1, 16, 16);
  const Model model = model_of(16, 0);
  Cluster now = uniform_cluster(4, {});
  now.workers[1].speed = 0.5;
  const RemedyChoice choice = choose_remedy(plan, model, now, terms_of(5, 50)).value();
  EXPECT_FALSE(choice.moves.empty());
  EXPECT_EQ(chosen_of(choice).change, Duration{});
  expect_consistent(choice, plan, model, now);
}

TEST(ChooseRemedy, MovesLayersOnceThatPays) {
  const Plan plan = fine_plan(3, 1, 12, 6);
  const Model model = model_of(12, 1'000'000);
  Cluster now = uniform_cluster(3, {{}, 1e6});  // three seconds for the state of a layer
  now.workers[0].speed = 0.5;
  const auto moves = [&](int64_t lasted, int64_t left) {
    return choose_remedy(plan, model, now, terms_of(lasted, left)).value();
  };
  const RemedyChoice soon = moves(5, 100'000);
  EXPECT_TRUE(soon.moves.empty());
  ASSERT_GT(soon.pays_after, 5);
  EXPECT_TRUE(moves(soon.pays_after - 1, 100'000).moves.empty());
  const RemedyChoice then = moves(soon.pays_after, 100'000);
  EXPECT_FALSE(then.moves.empty());
  expect_consistent(then, plan, model, now);
  EXPECT_TRUE(moves(100'000, 5).moves.empty());  // the run ends before it pays
}

// Troubles of this run have ended soon after this time: moving does not pay.
TEST(ChooseRemedy, LearnsHowLongTroublesLast) {
  const Plan plan = fine_plan(3, 1, 12, 6);
  const Model model = model_of(12, 1'000'000);
  Cluster now = uniform_cluster(3, {{}, 1e6});
  now.workers[0].speed = 0.5;
  RemedyTerms terms = terms_of(5, 100'000);
  terms.troubles.lasted = choose_remedy(plan, model, now, terms).value().pays_after;
  EXPECT_FALSE(choose_remedy(plan, model, now, terms).value().moves.empty());
  terms.troubles.ended = SeenDurations(20, terms.troubles.lasted + 2);
  EXPECT_TRUE(choose_remedy(plan, model, now, terms).value().moves.empty());
  terms.troubles.lasted = 5;
  terms.troubles.ended = SeenDurations(20, 100'000);
  EXPECT_FALSE(choose_remedy(plan, model, now, terms).value().moves.empty());
}

// A move that costs nothing makes a step a little shorter while a worker is slow, and much longer
// when it is well again, until the run has seen that and the layer is back.
TEST(ChooseRemedy, WeighsTheStepsUntilLayersAreBack) {
  const auto home = std::make_shared<const Plan>(fine_plan(2, 1, 6, 6));
  const Model model = model_of(6, 0);
  const auto healthy = std::make_shared<const Cluster>(uniform_cluster(2, {}));
  Cluster now = *healthy;
  now.workers[1].speed = 0.7;
  RemedyTerms terms = terms_of(6, 10'000);
  terms.home = home;
  terms.healthy = healthy;
  terms.troubles.present = {{{1}, {1}, 6}};
  // By how much moving a layer is better than keeping the plan, if troubles last for so long.
  const auto gain_ms = [&](int64_t lasts) {
    terms.troubles.ended = SeenDurations(20, lasts);
    const RemedyChoice choice = choose_remedy(*home, model, now, terms).value();
    double kept = 0, moved = 0;
    for (const Alternative& one : choice.alternatives) {
      if (one.name == "the present plan") kept = one.total_ms;
      if (one.name == "1 layer at other workers") moved = one.total_ms;
    }
    return kept - moved;
  };
  EXPECT_LT(gain_ms(12), 0);
  EXPECT_GT(gain_ms(300), 0);
}

TEST(ChooseRemedy, SwapsWorkersAroundASlowLink) {
  const Plan plan = fine_plan(4, 1, 8, 4);
  const Model model = model_of(8);
  Cluster now = healthy_cluster(4);
  now.exceptions[{{1}, {2}}] = now.exceptions[{{2}, {1}}] = {40 * kMillisecond, 1e9};
  const RemedyChoice choice = choose_remedy(plan, model, now, terms_of(1000, 1'000'000)).value();
  EXPECT_NE(chosen_of(choice).name.find("in each other's place"), std::string::npos)
      << chosen_of(choice).name;
  expect_consistent(choice, plan, model, now);
}

// Micro-batches and layers leave a slow worker, and the decision compares both and their
// combination.
TEST(ChooseRemedy, ComparesRoutesAndLayersAndBoth) {
  const Plan plan = fine_plan(3, 2, 12, 6);
  const Model model = model_of(12);
  Cluster now = healthy_cluster(6);
  now.workers[1].speed = 0.3;  // both holders of the layers in the middle are slow
  now.workers[4].speed = 0.6;
  const RemedyChoice choice = choose_remedy(plan, model, now, terms_of(1000, 1'000'000)).value();
  EXPECT_TRUE(offers(choice, "other routes of micro-batches"));
  EXPECT_TRUE(offers(choice, "at other workers"));
  EXPECT_TRUE(offers(choice, "other routes of micro-batches, and "));
  EXPECT_NE(choice.plan, nullptr);
  expect_consistent(choice, plan, model, now);
}

TEST(ChooseRemedy, TakesNothingThatIsNotAllowed) {
  const Plan plan = fine_plan(3, 2, 9, 4);
  Cluster now = healthy_cluster(6);
  now.workers[1].speed = 0.3;
  RemedyTerms terms = terms_of(1000, 1000);
  terms.routes = terms.layers = false;
  const RemedyChoice choice = choose_remedy(plan, model_of(9), now, terms).value();
  EXPECT_FALSE(offers(choice, "routes"));
  EXPECT_FALSE(offers(choice, "layer"));
  EXPECT_TRUE(choice.moves.empty());
}

TEST(ChooseRemedy, PlansForADeadWorker) {
  const Plan whole = plan_of(3, 3, 3, 6);
  Cluster now = healthy_cluster(9);
  now.workers[4].alive = false;
  std::vector<bool> alive(9, true);
  alive[4] = false;
  const Plan plan = without_workers(whole, alive).value();
  RemedyTerms terms = terms_of(0, 100);
  terms.layers = false;
  const auto choice = choose_remedy(plan, model_of(3), now, terms);
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  expect_consistent(choice.value(), plan, model_of(3), now);
  // The plan that runs ops on the dead worker cannot be kept.
  const auto other = choose_remedy(whole, model_of(3), now, terms);
  ASSERT_TRUE(other.ok()) << other.error().message;
  ASSERT_NE(other.value().plan, nullptr);
  EXPECT_FALSE(offers(other.value(), "the present plan"));
}

// Moves that are only observed: the best of what may be done is done, and the moves are told of.
TEST(ChooseRemedy, DoesTheBestThatMayBeDone) {
  const Plan plan = fine_plan(4, 1, 8, 4);
  const Model model = model_of(8);
  Cluster now = healthy_cluster(4);
  now.exceptions[{{1}, {2}}] = now.exceptions[{{2}, {1}}] = {40 * kMillisecond, 1e9};
  RemedyTerms terms = terms_of(1000, 1'000'000);
  const RemedyChoice moved = choose_remedy(plan, model, now, terms).value();
  ASSERT_FALSE(moved.moves.empty());
  EXPECT_EQ(moved.observed, "");
  terms.only_observes_layers = true;
  const RemedyChoice observed = choose_remedy(plan, model, now, terms).value();
  EXPECT_TRUE(observed.moves.empty());
  EXPECT_EQ(observed.observed, moved.reason);
  EXPECT_EQ(observed.alternatives.size(), moved.alternatives.size());
  // What it does is what it would do if no layers could move.
  terms.layers = false;
  const RemedyChoice without = choose_remedy(plan, model, now, terms).value();
  ASSERT_NE(without.plan, nullptr);
  ASSERT_NE(observed.plan, nullptr);
  EXPECT_EQ(*observed.plan, *without.plan);
  EXPECT_EQ(without.observed, "");
}

// Random mixtures of troubles: all that a choice says agrees with the prices of its plan, and the
// same question gets the same answer.
TEST(ChooseRemedy, IsConsistentForRandomTroubles) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto workers = static_cast<int32_t>(2 + random.below(3));
    const auto pipelines = static_cast<int32_t>(1 + random.below(3));
    const Plan plan = fine_plan(workers, pipelines, 3 * workers, 4);
    const Model model = model_of(3 * workers);
    Cluster now = healthy_cluster(workers * pipelines);
    for (int64_t i = random.below(3); i >= 0; --i) {
      const auto one = static_cast<int32_t>(random.below(workers * pipelines));
      if (random.below(2) == 0) {
        now.workers[static_cast<size_t>(one)].speed =
            0.3 + 0.1 * static_cast<double>(random.below(5));
      } else if (one + 1 < workers * pipelines) {
        const Link slow{static_cast<int64_t>(1 + random.below(20)) * kMillisecond, 1e9};
        now.exceptions[{{one}, {one + 1}}] = now.exceptions[{{one + 1}, {one}}] = slow;
      }
    }
    const RemedyTerms terms = terms_of(1 + static_cast<int64_t>(random.below(100)), 1000);
    const auto choice = choose_remedy(plan, model, now, terms);
    ASSERT_TRUE(choice.ok()) << choice.error().message;
    expect_consistent(choice.value(), plan, model, now);
    const auto again = choose_remedy(plan, model, now, terms);
    EXPECT_EQ(again.value().reason, choice.value().reason);
    EXPECT_EQ(again.value().moves, choice.value().moves);
  }
}

}  // namespace
}  // namespace tenuto
