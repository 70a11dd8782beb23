#include "world/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/random.h"

namespace tenuto {
namespace {

std::vector<ParameterCard> perceptron() {
  ModelSettings model;
  model.kind = "mlp";
  model.layers = 1;
  model.width = 5;
  return parameters_of(model, {3, 2}, 0, 2);
}

TEST(ParameterLayout, MatricesComeFirst) {
  const std::vector<ParameterCard> cards = perceptron();
  ASSERT_EQ(cards.size(), 4u);  // weight 5 x 3, bias 5, weight 2 x 5, bias 2
  const ParameterLayout layout = layout_of(cards);
  EXPECT_EQ(layout.first, (std::vector<int64_t>{0, 32, 16, 48}));
  EXPECT_EQ(layout.decayed_end, 32);
  EXPECT_EQ(layout.shared_first, 64);
  EXPECT_EQ(layout.count, 64);
}

TEST(ParameterLayout, NothingTakesNoPlace) {
  const ParameterLayout layout = layout_of({});
  EXPECT_TRUE(layout.first.empty());
  EXPECT_EQ(layout.count, 0);
  EXPECT_TRUE(growth_of({}, layout).empty());
}

TEST(Growth, TheLastTensorIsCompleteFirst) {
  const std::vector<ParameterCard> cards = perceptron();
  EXPECT_EQ(growth_of(cards, layout_of(cards)),
            (std::vector<ElementRange>{{48, 50}, {16, 26}, {32, 37}, {0, 15}}));
}

TEST(Growth, BuffersHaveNone) {
  std::vector<ParameterCard> cards = perceptron();
  cards[1].trained = false;
  EXPECT_EQ(growth_of(cards, layout_of(cards)),
            (std::vector<ElementRange>{{48, 50}, {16, 26}, {0, 15}}));
}

// In every stage of random models, the tensors of each kind fill its region in their order, with
// gaps that only align them; and each tensor is completed once, the last one first.
TEST(ParameterLayout, EachKindIsTogether) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    ModelSettings model;
    model.layers = static_cast<int32_t>(1 + random.below(4));
    model.width = static_cast<int32_t>(1 + random.below(40));
    model.sequence = static_cast<int32_t>(1 + random.below(20));
    model.tied = random.below(2) == 0;
    const auto first = static_cast<int32_t>(random.below(model.layers + 2));
    const auto end = static_cast<int32_t>(first + 1 + random.below(model.layers + 2 - first));
    const std::vector<ParameterCard> cards = parameters_of(model, {}, first, end);
    const ParameterLayout layout = layout_of(cards);
    std::vector<ElementRange> reversed;
    int64_t next = 0;
    for (int kind = 0; kind < 3; ++kind) {  // matrices, others, the shared weight
      for (size_t i = 0; i < cards.size(); ++i) {
        if ((cards[i].shared ? 2 : cards[i].decays() ? 0 : 1) != kind) continue;
        EXPECT_EQ(layout.first[i] % 16, 0);
        EXPECT_GE(layout.first[i], next);
        EXPECT_LT(layout.first[i] - next, 16);
        next = layout.first[i] + cards[i].count();
      }
      const int64_t ends[] = {layout.decayed_end, layout.shared_first, layout.count};
      EXPECT_GE(ends[kind], next);
      EXPECT_LT(ends[kind] - next, 16);
    }
    for (size_t i = 0; i < cards.size(); ++i) {
      reversed.push_back({layout.first[i], layout.first[i] + cards[i].count()});
    }
    std::reverse(reversed.begin(), reversed.end());
    EXPECT_EQ(growth_of(cards, layout), reversed) << "layers " << first << " to " << end;
  }
}

// Whole steps have the bits of the rule in whole numbers.
TEST(LearningRate, OfWholeSteps) {
  OptimizerSettings optimizer;
  optimizer.learning_rate = 0.3;
  optimizer.minimum_rate = 0.07;
  optimizer.warm_up_steps = 7;
  for (int64_t step = 0; step < 130; ++step) {
    double expected = optimizer.learning_rate * static_cast<double>(step + 1) / 7.0;
    if (step >= 7) {
      const double progress = std::min(1.0, static_cast<double>(step - 7) / 97.0);
      const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
      expected = optimizer.learning_rate *
                 (optimizer.minimum_rate + (1.0 - optimizer.minimum_rate) * share);
    }
    EXPECT_EQ(learning_rate(optimizer, static_cast<double>(step), 104), expected) << step;
  }
}

TEST(LearningRate, BetweenSteps) {
  OptimizerSettings optimizer;
  optimizer.learning_rate = 1;
  optimizer.warm_up_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 0.5, 104), 0.375);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 2.5, 104), 0.875);
  // The rate never rises above the highest one.
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 3.5, 104), 1);
  double before = 1;
  for (double step = 4; step < 110; step += 0.25) {
    const double rate = learning_rate(optimizer, step, 104);
    EXPECT_LE(rate, before) << step;
    before = rate;
  }
  EXPECT_DOUBLE_EQ(before, 0.1);
  optimizer.schedule = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 60.5, 104), 1);
}

}  // namespace
}  // namespace tenuto
